const KEY_METRICS = [
  "eval/accuracy", "eval/success_once", "eval/return", "reward/mean", "rollout/accuracy", "rollout/return",
  "rollout/success_once", "rollout/response_length", "train/entropy", "reward/constant_groups",
  "train/clip_fraction_high", "train/approx_kl_k3", "train/grad_norm", "train/sampler_logprob_gap",
  "train/explained_variance", "train/loss", "sft/loss", "speed/tokens_per_s", "speed/steps_per_s",
];
const AXES = { step: "step", "axis/tokens": "tokens generated", "axis/env_steps": "environment steps", "axis/minutes": "minutes of training" };
/** Student's t of a 95% interval by degrees of freedom, from 1 on; beyond the list 1.96 + 2.4 / freedom. */
const STUDENT = [
  12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
  2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/** The points of a metric over an axis, without the steps that have none. */
function points(series, metric, axis) {
  const found = { x: [], y: [], low: [], high: [] };
  const column = series[metric] || [];
  const [lows, highs] = [series[`${metric}/ci_low`], series[`${metric}/ci_high`]];
  column.forEach((value, i) => {
    const x = series[axis]?.[i];
    if (value === null || x === null || x === undefined) return;
    found.x.push(x);
    found.y.push(value);
    if (lows) { found.low.push(lows[i]); found.high.push(highs[i]); }
  });
  return found;
}

/** Centred moving means over `width` points, with the 95% interval of each window's mean. */
function smoothed(values, width) {
  const half = Math.floor(width / 2);
  return values.map((_, i) => {
    const part = values.slice(Math.max(0, i - half), i + half + 1);
    const mean = part.reduce((sum, value) => sum + value, 0) / part.length;
    const variance = part.reduce((sum, value) => sum + (value - mean) ** 2, 0) / Math.max(1, part.length - 1);
    const freedom = Math.max(1, part.length - 1);
    const spread = (STUDENT[freedom - 1] ?? 1.96 + 2.4 / freedom) * Math.sqrt(variance / part.length);
    return { mean, low: mean - spread, high: mean + spread };
  });
}

/** A line for each run that has the metric: with its intervals where there are some, else smoothed over `width` points. */
function metricLines(runs, metric, axis, width) {
  return runs.flatMap((run, i) => {
    const line = { name: run.label, colour: PALETTE[i % PALETTE.length] };
    const found = points(run.series, metric, axis);
    if (!found.y.length) return [];
    // A window over most of a short curve would show a flat line.
    const span = Math.min(width, Math.floor(found.y.length / 4));
    if (found.low.length || span < 2) return [{ ...line, ...found, dots: found.low.length > 0 }];
    const smooth = smoothed(found.y, span);
    return [{ ...line, x: found.x, y: smooth.map((s) => s.mean), low: smooth.map((s) => s.low), high: smooth.map((s) => s.high), raw: found.y }];
  });
}

/** What a plot of lines over one of AXES has below it. */
function axisOptions(axis, lines = []) {
  const warm = axis === "step" && lines.some((line) => line.x[0] < 0);
  return { xLabel: warm ? "step (below 0: warm start)" : AXES[axis], whole: axis !== "axis/minutes" };
}

/** The curves that the runs are judged by, as the first thing to see. */
function headlineCurves(runs) {
  const names = [...new Set(runs.flatMap((run) => run.headlines))];
  if (!names.length) return el("p", { class: "dim" }, "No reward and no evaluation has been logged yet.");
  const longest = Math.max(...runs.map((run) => run.series.step.length));
  return el("div", { class: "grid wide headlines" }, names.map((name) => {
    const node = el("div");
    const card = el("div", { class: "card", "data-metric": name }, node);
    const banded = runs.some((run) => run.series[`${name}/ci_low`]);
    const title = `${name}${banded ? ", 95% interval" : ""}`;
    const lines = metricLines(runs, name, "step", longest > 30 ? 7 : 1);
    plotLines(node, lines, { height: 250, title, legend: runs.length > 1, ...axisOptions("step", lines) });
    return card;
  }));
}

function plottable(runs) {
  const names = new Set(runs.flatMap((run) => Object.keys(run.series)));
  return [...names].filter((name) => name !== "step" && !name.startsWith("axis/") && !/\/(ci_low|ci_high|n)$/.test(name)).sort();
}

function curvesPanel(section, runs) {
  const all = plottable(runs);
  const key = KEY_METRICS.filter((name) => all.includes(name));
  const longest = Math.max(...runs.map((run) => run.series.step.length));
  const state = { axis: "step", width: longest > 30 ? 7 : 1, which: "key", words: "" };
  const axes = Object.entries(AXES).filter(([name]) => runs.some((run) => run.series[name]));
  const grid = el("div", { class: "grid" });
  const shownWidth = el("span", {}, state.width);

  function draw() {
    forget(grid);
    const names = (state.which === "key" && !state.words ? key : all).filter((name) => name.includes(state.words));
    for (const name of names) {
      const node = el("div");
      grid.append(el("div", { class: "card", "data-metric": name }, node));
      const lines = metricLines(runs, name, state.axis, state.width);
      plotLines(node, lines, { title: name, legend: runs.length > 1, ...axisOptions(state.axis, lines) });
    }
  }

  const slider = el("input", { type: "range", min: 1, max: 51, step: 2, value: state.width, oninput: () => {
    state.width = Number(slider.value);
    shownWidth.textContent = state.width;
    draw();
  } });
  const search = el("input", { type: "search", placeholder: "find a metric…", "aria-label": "find a metric", oninput: () => { state.words = search.value.trim(); draw(); } });
  section.append(
    el("div", { class: "controls" },
      choice("over", axes, (value) => { state.axis = value; draw(); }, state.axis),
      el("label", {}, "smoothing", slider, shownWidth),
      choice("show", [["key", "the important ones"], ["all", `all ${all.length}`]], (value) => { state.which = value; draw(); }, state.which),
      search,
      el("span", { class: "dim" }, "bands: 95% interval of the evaluation, or of the smoothing window's mean; drag in a plot to zoom")),
    grid);
  draw();
}
