/** So many nulls of a list, which the JSON of a page gives as their number. */
class Nulls {
  constructor(count) {
    this.count = count;
  }
}

const DATA = unpacked(document.getElementById("data").textContent);
const PALETTE = ["#2f81f7", "#e5703a", "#2da44e", "#a371f7", "#d4a017", "#e0529c", "#1aa7a7", "#8a6d5a", "#7d8794", "#c0392b"];

/** The values of a page's JSON. `{"nulls": 9}` is nine nulls of a list, `{"nulls": [value]}` a record with that key. */
function unpacked(text) {
  const whole = (item) => (item instanceof Nulls ? new Array(item.count).fill(null) : [item]);
  return JSON.parse(text, (_, value) => {
    if (Array.isArray(value)) return value.some((item) => item instanceof Nulls) ? value.flatMap(whole) : value;
    if (value?.nulls === undefined || Object.keys(value).length > 1) return value;
    return Array.isArray(value.nulls) ? { nulls: value.nulls[0] } : new Nulls(value.nulls);
  });
}

/** An element with attributes (`on...` are listeners, true and false are switches) and children. */
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined).map((child) =>
    child instanceof Node ? child : String(child)));
  return node;
}

function number(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  const size = Math.abs(value);
  if (size < 1e5 && size >= 1e-3) return String(Number(value.toPrecision(digits)));
  return Number(value.toPrecision(3)).toExponential();
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 90) return `${number(seconds, 3)} s`;
  return seconds < 5400 ? `${(seconds / 60).toFixed(1)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function faded(colour, alpha) {
  const value = parseInt(colour.slice(1), 16);
  return `rgba(${value >> 16}, ${(value >> 8) & 255}, ${value & 255}, ${alpha})`;
}

/** Plots near the window are drawn, the others when they get there: a page with fifty of them opens at once. */
const WAITING = new Map();
const WATCH = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const draw = WAITING.get(entry.target);
    if (entry.isIntersecting && draw) {
      WAITING.delete(entry.target);
      WATCH.unobserve(entry.target);
      draw();
    }
  }
}, { rootMargin: "300px" });

function whenSeen(node, draw) {
  WAITING.set(node, draw);
  WATCH.observe(node);
}

function forget(parent) {
  for (const node of [...CHARTS.keys(), ...WAITING.keys()]) {
    if (!parent.contains(node)) continue;
    removeChart(node);
    if (WAITING.delete(node)) WATCH.unobserve(node);
  }
  parent.replaceChildren();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  for (const chart of CHARTS.values()) chart.redraw();
}

const TABS = [];

/** A tab whose content is made when it is first opened. */
function tab(name, build) {
  TABS.push({ name, build, section: null, button: null });
}

function openTab(name) {
  for (const entry of TABS) {
    const chosen = entry.name === name;
    entry.button.setAttribute("aria-selected", chosen);
    if (chosen && entry.section === null) {
      entry.section = el("section", { id: `panel-${entry.name.toLowerCase()}` });
      document.getElementById("panels").append(entry.section);
      entry.build(entry.section);
    }
    if (entry.section) entry.section.hidden = !chosen;
  }
}

function choice(label, options, onchange, chosen) {
  const select = el("select", { onchange: () => onchange(select.value) },
    options.map(([value, text]) => el("option", { value, selected: value === chosen }, text)));
  return el("label", {}, label, select);
}

function fact(label, value) {
  return el("div", { class: "card" }, el("b", {}, value), el("span", {}, label));
}
