// Both ends stand out from a light page and from a dark one.
const SCALE = [[47, 129, 247], [163, 113, 247], [229, 112, 58]];
const PARALLEL = { height: 400, top: 46, bottom: 16, side: 64, gap: 110 };

/** The colour of a share from 0 to 1. */
function scaleColour(share) {
  const position = Math.min(share * 2, 1.999);
  const [from, to] = [SCALE[Math.floor(position)], SCALE[Math.floor(position) + 1]];
  return `rgb(${from.map((value, i) => Math.round(value + (to[i] - value) * (position % 1))).join(", ")})`;
}

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}

/**
 * One axis of the parallel coordinates: numbers as they are (as powers of ten, where they span several), words by index.
 * @typedef {{label: string, values: number[], ticks: [number, string][] | null}} Coordinate
 * @returns {Coordinate}
 */
function coordinate(label, values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  if (known.every((value) => typeof value === "number")) {
    const missing = Math.min(...known);
    const logarithmic = missing > 0 && Math.max(...known) / missing > 50;
    const change = (value) => (logarithmic ? Math.log10(value ?? missing) : value ?? missing);
    const distinct = [...new Set(known)].sort((a, b) => a - b);
    /** @type {[number, string][] | null} */
    const ticks = distinct.length > 8 ? null : distinct.map((value) => [change(value), number(value)]);
    return { label: logarithmic && !ticks ? `log₁₀ ${label}` : label, values: values.map(change), ticks };
  }
  const words = [...new Set(values.map((value) => String(value ?? "not set")))].sort();
  return { label, values: values.map((value) => words.indexOf(String(value ?? "not set"))), ticks: words.map((word, i) => [i, word]) };
}

/**
 * A line for each trial through an axis for each coordinate, coloured by its result. Dragging along an axis keeps the lines
 * that pass there; dragging a name moves its axis.
 * @param {HTMLElement} node
 * @param {Coordinate[]} coordinates
 * @param {number[]} results
 * @param {boolean} least whether small results are the good ones, which have the warm colour.
 */
function parallelPlot(node, coordinates, results, least) {
  const { height, top, bottom, side, gap } = PARALLEL;
  const [low, high] = [Math.min(...results), Math.max(...results)];
  const share = (result) => (high > low ? (result - low) / (high - low) : 0.5);
  const colours = results.map((result) => scaleColour(least ? 1 - share(result) : share(result)));
  const axes = coordinates.map((one) => ({ ...one, low: Math.min(...one.values), high: Math.max(...one.values), kept: null }));
  const y = (axis, value) => top + (height - top - bottom) * (axis.high > axis.low ? 1 - (value - axis.low) / (axis.high - axis.low) : 0.5);
  const count = el("span", {});
  const picture = svg("svg", { class: "parallel", height, role: "img", "aria-label": "parallel coordinates of the trials" });
  const ends = least ? [high, low] : [low, high];
  node.classList.add("plot");
  node.replaceChildren(el("p", { class: "legend" }, el("span", {}, `${coordinates[coordinates.length - 1].label} `, number(ends[0]),
    el("i", { class: "scale", style: `background: linear-gradient(90deg, ${[0, 0.5, 1].map(scaleColour).join(", ")})` }), number(ends[1])), count), el("div", { class: "across" }, picture));

  const passes = (trial) => axes.every(({ kept, values }) => kept === null || (values[trial] >= kept[0] && values[trial] <= kept[1]));

  function draw() {
    const width = Math.max(node.clientWidth, 2 * side + gap * (axes.length - 1));
    const x = (i) => side + ((width - 2 * side) * i) / Math.max(1, axes.length - 1);
    const shown = results.map((_, trial) => passes(trial));
    count.textContent = shown.every(Boolean) ? "" : `${shown.filter(Boolean).length} of ${results.length} trials`;
    const line = (trial) => svg("path", {
      class: shown[trial] ? "trial" : "trial out", stroke: colours[trial], d: `M${axes.map((axis, i) => `${x(i).toFixed(1)} ${y(axis, axis.values[trial]).toFixed(1)}`).join("L")}`,
    }, svg("title", {}, axes.map((axis) => `${axis.label} ${axisWords(axis, trial)}`).join(", ")));
    // Those that are kept are drawn over the others.
    const trials = [...results.keys()].sort((a, b) => Number(shown[a]) - Number(shown[b]));
    picture.setAttribute("width", String(width));
    picture.replaceChildren(...trials.map(line), ...axes.map((axis, i) => axisGroup(axis, x(i))));
  }

  function axisGroup(axis, x) {
    const ticks = axis.ticks ?? roundTicks(axis.low, axis.high, 6).map((value) => [value, tick(value)]);
    const kept = axis.kept ? [svg("rect", { class: "kept", x: x - 6, width: 12, y: y(axis, axis.kept[1]), height: Math.max(2, y(axis, axis.kept[0]) - y(axis, axis.kept[1])) })] : [];
    const name = svg("text", { class: "name", x, y: 18 }, axis.label.length > 18 ? `${axis.label.slice(0, 17)}…` : axis.label, svg("title", {}, axis.label));
    const grip = svg("rect", { class: "grip", x: x - 16, width: 32, y: top - 8, height: height - top - bottom + 16 });
    const group = svg("g", {}, svg("line", { x1: x, x2: x, y1: top, y2: height - bottom }), ...kept,
      ...ticks.map(([value, text]) => svg("text", { x: x + 8, y: y(axis, value) + 4 }, text)), grip, name);
    dragged(grip, (from, to) => keep(axis, from[1], to[1]));
    dragged(name, (_, to) => move(axis, to[0]));
    return group;
  }

  function keep(axis, from, to) {
    const value = (pixel) => axis.low + (axis.high - axis.low) * (1 - (pixel - top) / (height - top - bottom));
    axis.kept = Math.abs(from - to) < 4 ? null : [value(Math.max(from, to)), value(Math.min(from, to))];
    draw();
  }

  function move(axis, to) {
    const width = picture.clientWidth;
    const index = Math.round(((to - side) / Math.max(1, width - 2 * side)) * (axes.length - 1));
    axes.splice(axes.indexOf(axis), 1);
    axes.splice(Math.max(0, Math.min(axes.length, index)), 0, axis);
    draw();
  }

  /** Calls `done` with the two ends of a drag, as positions in the picture. */
  function dragged(target, done) {
    const position = (event) => [event.clientX - picture.getBoundingClientRect().left, event.clientY - picture.getBoundingClientRect().top];
    target.addEventListener("pointerdown", (begin) => {
      begin.preventDefault();
      const from = position(begin);
      window.addEventListener("pointerup", (end) => done(from, position(end)), { once: true });
    });
  }
  whenSeen(node, draw);
}

/** The value of a trial at an axis. */
function axisWords(axis, trial) {
  const value = axis.values[trial];
  return axis.ticks?.find(([at]) => at === value)?.[1] ?? number(value);
}
