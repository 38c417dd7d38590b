/** The charts that are drawn: an element and its uPlot. Their canvas takes its colours from the page's theme. */
const CHARTS = new Map();
const RESIZED = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    const chart = CHARTS.get(target);
    if (chart && contentRect.width > 0 && contentRect.width !== chart.width) chart.setSize({ width: contentRect.width, height: chart.height });
  }
});
const CLOCK_AXIS = 60;
const WHOLE_STEPS = [1, 2, 5].flatMap((digit) => Array.from({ length: 13 }, (_, power) => digit * 10 ** power)).sort((a, b) => a - b);

function removeChart(node) {
  const chart = CHARTS.get(node);
  if (!chart) return;
  CHARTS.delete(node);
  RESIZED.unobserve(node);
  chart.destroy();
}

/**
 * A line of a plot. `low` and `high` bound its band, `raw` is drawn faintly behind it; `dots` marks each point, and
 * without `stroke` there are only dots. `values` are shown on hover instead of `y`. A `hidden` line is drawn when its name in the legend is clicked.
 * @typedef {{name: string, colour: string, x: number[], y: (number | null)[], low?: (number | null)[], high?: (number | null)[],
 *   raw?: (number | null)[], values?: (number | null)[], dots?: boolean, stroke?: boolean, hidden?: boolean}} Line
 * @typedef {{title?: string, height?: number, xLabel?: string, yLabel?: string, whole?: boolean, legend?: boolean,
 *   stacked?: boolean, range?: [number, number], fromZero?: boolean, clock?: Clock, marks?: number[]}} PlotOptions
 */

/**
 * Lines in a node, drawn once it is in the window: values on hover, zoom by dragging, a legend that hides and shows.
 * @param {HTMLElement} node
 * @param {Line[]} lines
 * @param {PlotOptions} options `whole`: x counts something; `stacked`: areas on top of each other. `clock`: the plot has its axis
 *   in common with others of that clock, shows its step, and a click sets it. `marks`: upright lines at these x.
 */
function plotLines(node, lines, options = {}) {
  const { title = "", height = 220, legend = lines.length > 1 } = options;
  const hidden = new Set(lines.filter((line) => line.hidden));
  const canvas = el("div", { class: "canvas", style: `height: ${height}px` });
  const whole = el("button", { type: "button", class: "unzoom", hidden: true, onclick: () => unzoom(options.clock?.charts ?? [CHARTS.get(canvas)]) }, "whole range");
  const name = (line) => {
    const button = el("button", { type: "button", "aria-pressed": String(!hidden.has(line)), onclick: () => {
      if (!hidden.delete(line)) hidden.add(line);
      button.setAttribute("aria-pressed", String(!hidden.has(line)));
      draw();
    } }, el("i", { style: `background: ${line.colour}` }), line.name);
    return button;
  };
  node.classList.add("plot");
  node.setAttribute("role", "group");
  node.setAttribute("aria-label", title || lines.map((line) => line.name).join(", "));
  node.replaceChildren(...[title ? el("div", { class: "title" }, title) : null, whole, canvas, legend ? el("div", { class: "names" }, lines.map(name)) : null].filter(Boolean));

  function draw() {
    removeChart(canvas);
    const shown = lines.filter((line) => !hidden.has(line) && line.x.length);
    canvas.replaceChildren();
    if (shown.length) drawChart(canvas, shown, { ...options, height });
    else canvas.append(el("p", { class: "dim" }, "no values"));
  }
  whenSeen(node, draw);
}

function unzoom(charts) {
  for (const chart of charts) chart?.setData(chart.data, true);
}

/** All lines' x in order, and a function that spreads a line's values over them. A value that occurs twice in a line stays twice. */
function sharedX(lines) {
  const points = new Map();
  const keys = lines.map((line) => {
    const times = new Map();
    return line.x.map((x) => {
      const time = times.get(x) ?? 0;
      times.set(x, time + 1);
      const key = `${x} ${time}`;
      points.set(key, [x, time]);
      return key;
    });
  });
  const order = [...points].sort(([, a], [, b]) => a[0] - b[0] || a[1] - b[1]);
  const index = new Map(order.map(([key], i) => [key, i]));
  // undefined: the line has no point there, and goes on; null: a gap of its own.
  const spread = (i, values) => {
    const column = new Array(order.length).fill(undefined);
    values.forEach((value, j) => { column[index.get(keys[i][j])] = value; });
    return column;
  };
  return { x: order.map(([, [x]]) => x), spread };
}

/** Each line on top of those before it, the highest first: what is drawn later covers its lower part. */
function stackedLines(lines) {
  const sums = [];
  let below = lines[0].x.map(() => 0);
  for (const line of lines) {
    below = below.map((sum, i) => sum + (line.y[i] ?? 0));
    sums.unshift({ ...line, y: below, values: line.y });
  }
  return sums;
}

/** uPlot's series, data and bands of the lines; `main` has, by the number of its series, each line and the numbers of its others. */
function seriesOf(lines, stacked) {
  const { x, spread } = sharedX(lines);
  /** @type {uPlot.Series[]} */
  const series = [{}];
  /** @type {any} a column for each series, x first */
  const data = [x];
  const bands = [];
  const main = new Map();
  lines.forEach((line, i) => {
    const add = (values, options) => data.push(spread(i, values)) && series.push({ points: { show: false }, ...options }) - 1;
    const low = line.low?.length ? add(line.low, { width: 0 }) : null;
    const high = line.low?.length ? add(line.high, { width: 0 }) : null;
    if (low && line.x.length > 1) bands.push({ series: [high, low], fill: faded(line.colour, 0.18) });
    const raw = line.raw ? add(line.raw, { width: 1, stroke: faded(line.colour, 0.35) }) : null;
    const dots = !stacked && (line.dots || line.x.length < 3);
    const own = add(line.y, {
      width: stacked ? 0 : 2, stroke: line.colour, ...(stacked ? { fill: line.colour } : {}), ...(line.stroke === false ? { paths: () => null } : {}),
      points: { show: dots, size: line.stroke === false ? 4 : 7, fill: line.colour, width: 0 },
    });
    main.set(own, { line, low, high, raw });
  });
  return { series, data, bands, main };
}

function drawChart(node, given, options) {
  const { height = 0, xLabel = "", yLabel = "", whole = false, stacked = false, range, fromZero = false, clock, marks = [] } = options;
  const lines = stacked ? stackedLines(given) : given;
  const { series, data, bands, main } = seriesOf(lines, stacked);
  const dotted = series.some((one) => one.points?.show);
  // What has dots, or a single value, does not end at the frame.
  const pad = (low, high) => (low === high ? Math.max(1, Math.abs(low) / 10) : dotted ? (high - low) / 40 : 0);
  const axis = {
    stroke: () => css("--text"), font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif",
    grid: { stroke: () => css("--line"), width: 1 }, ticks: { stroke: () => css("--line"), width: 1, size: 4 },
    values: (_, splits) => splits.map(tick),
  };
  const words = el("div", { class: "hover", hidden: true });
  /**
   * All steps of a clock, whatever was kept of them: its plots' axes begin and end alike.
   * @returns {[number, number]}
   */
  const widest = (low, high) => (clock && low === data[0][0] && high === data[0].at(-1) ? [0, clock.last] : [low - pad(low, high), high + pad(low, high)]);
  const chart = new uPlot({
    width: node.clientWidth, height, series, bands, padding: [10, 12, 0, 0],
    scales: {
      x: { time: false, range: (_, low, high) => widest(low, high) },
      y: { range: (_, low, high) => range ?? outwards(fromZero ? Math.min(0, low) : low, high) },
    },
    axes: [
      { ...axis, size: 30, space: 55, label: xLabel, labelSize: xLabel ? 20 : 0, labelGap: 0, ...(whole ? { incrs: WHOLE_STEPS } : {}) },
      { ...axis, size: (_, texts) => (clock ? CLOCK_AXIS : 16 + 7 * Math.max(2, ...(texts ?? []).map((text) => text.length))), space: 32, label: yLabel, labelSize: yLabel ? 20 : 0, labelGap: 0 },
    ],
    legend: { show: false },
    cursor: {
      ...(clock ? { drag: { x: true, y: false }, sync: { key: "clock" } } : { drag: { x: true, y: true, uni: 25 } }), y: false, hover: { skip: [null, undefined] },
      points: { size: (_, i) => (main.has(i) ? 8 : 0), width: 0, fill: (_, i) => main.get(i)?.line.colour ?? "transparent" },
    },
    hooks: {
      setCursor: [(u) => showValues(u, words, main, xLabel)],
      setScale: [(u) => { node.parentElement.querySelector(".unzoom").hidden = !zoomed(u); }],
      drawAxes: [(u) => uprights(u, marks)],
      draw: [(u) => main.forEach(({ line, low }) => { if (low && line.x.length === 1) whiskers(u, line); })],
    },
  }, data, node);
  chart.over.append(words);
  touchDrags(chart.over);
  if (clock) followClock(chart, clock);
  CHARTS.set(node, chart);
  RESIZED.observe(node);
}

/** Lines from bottom to top at these x, unless they are too close to be distinguished. */
function uprights(u, marks) {
  const { left, top, width, height } = u.bbox;
  const pixels = marks.map((mark) => Math.round(u.valToPos(mark, "x", true))).filter((x) => x >= left && x <= left + width);
  if (pixels.length > 1 && pixels[1] - pixels[0] < 4 * devicePixelRatio) return;
  u.ctx.save();
  u.ctx.strokeStyle = css("--dim");
  u.ctx.globalAlpha = 0.6;
  u.ctx.lineWidth = devicePixelRatio;
  u.ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  u.ctx.beginPath();
  for (const x of pixels) {
    u.ctx.moveTo(x, top);
    u.ctx.lineTo(x, top + height);
  }
  u.ctx.stroke();
  u.ctx.restore();
}

/** A line at the step of a clock, which a click on the plot sets. */
function followClock(chart, clock) {
  const line = el("i", { class: "now" });
  const move = () => {
    const left = chart.valToPos(clock.step, "x");
    line.hidden = !(left >= 0 && left <= chart.over.clientWidth);
    line.style.transform = `translateX(${left}px)`;
  };
  chart.over.append(line);
  chart.over.addEventListener("click", (event) => clock.seek(chart.posToVal(event.clientX - chart.over.getBoundingClientRect().left, "x")));
  chart.hooks.draw.push(move);
  chart.hooks.destroy = [() => { clock.watchers.delete(move); clock.charts.delete(chart); }];
  clock.watchers.add(move);
  clock.charts.add(chart);
  move();
}

/** Whether a part of the values is out of the window. */
function zoomed(u) {
  const { min, max } = u.scales.x;
  const x = u.data[0];
  const { min: low, max: high } = u.scales.y;
  if (!x.length || low === null || low === undefined) return false;
  const beyond = (column) => column.some((value) => value !== null && value !== undefined && (value < low || value > high));
  return min > x[0] || max < x[x.length - 1] || u.data.slice(1).some(beyond);
}

/** A range of y with room above and below. */
function outwards(low, high) {
  if (low === null || high === null) return [0, 1];
  const room = high > low ? 0.06 * (high - low) : Math.abs(low) / 10 || 1;
  return [low === 0 ? 0 : low - room, high + room];
}

/** A number at an axis: 0.25, 1,500, 20K, 3M. */
function tick(value) {
  return Math.abs(value) < 10000 ? number(value) : value.toLocaleString("en-US", { notation: "compact" });
}

/** The interval of a line's single value. */
function whiskers(u, line) {
  const [x, high, low] = [u.valToPos(line.x[0], "x", true), u.valToPos(line.high[0], "y", true), u.valToPos(line.low[0], "y", true)];
  const wide = 6 * devicePixelRatio;
  u.ctx.save();
  u.ctx.strokeStyle = line.colour;
  u.ctx.lineWidth = 2 * devicePixelRatio;
  u.ctx.beginPath();
  for (const [fromX, fromY, toX, toY] of [[x, high, x, low], [x - wide, high, x + wide, high], [x - wide, low, x + wide, low]]) {
    u.ctx.moveTo(fromX, fromY);
    u.ctx.lineTo(toX, toY);
  }
  u.ctx.stroke();
  u.ctx.restore();
}

/** The values at the cursor: x, then each line's nearest value with its interval. */
function showValues(u, words, main, xLabel) {
  const { left, idxs } = u.cursor;
  const at = left < 0 ? [] : [...main].filter(([i]) => typeof idxs[i] === "number").slice(0, 12);
  words.hidden = !at.length;
  if (words.hidden) return;
  const x = at.map(([i]) => u.data[0][idxs[i]]);
  const cursor = u.posToVal(left, "x");
  const nearest = x.reduce((best, one) => (Math.abs(one - cursor) < Math.abs(best - cursor) ? one : best));
  words.replaceChildren(el("div", { class: "dim" }, `${xLabel} ${number(nearest)}`), ...at.map(([i, { line, low, high, raw }], row) => {
    const value = (series) => u.data[series][idxs[i]];
    const interval = low && value(low) !== null ? ` [${number(value(low), 3)}, ${number(value(high), 3)}]` : "";
    const unsmoothed = raw ? `, unsmoothed ${number(value(raw))}` : "";
    const elsewhere = x[row] === nearest ? "" : ` at ${number(x[row])}`;
    return el("div", {}, el("i", { style: `background: ${line.colour}` }), el("span", {}, line.name),
      el("b", {}, number(line.values ? line.values[idxs[i]] : value(i))), `${interval}${unsmoothed}${elsewhere}`);
  }));
  const [width, own] = [u.over.clientWidth, words.offsetWidth];
  const side = left < width / 2 ? left + 14 : left - 14 - own;
  words.style.left = `${Math.max(-40, Math.min(width - own, side))}px`;
}

/** A finger that moves sideways zooms as a mouse does; up and down it scrolls the page. */
function touchDrags(over) {
  const kinds = { pointerdown: "mousedown", pointermove: "mousemove", pointerup: "mouseup" };
  for (const [kind, mouse] of Object.entries(kinds)) {
    over.addEventListener(kind, (event) => {
      if (event.pointerType !== "touch") return;
      over.dispatchEvent(new MouseEvent(mouse, { bubbles: true, clientX: event.clientX, clientY: event.clientY, movementX: 1 }));
    });
  }
}
