// Both ends stand out from a light page and from a dark one.
const SCALE = [[0, "#2f81f7"], [0.5, "#a371f7"], [1, "#e5703a"]];

/** Every setting with its interval and its seeds, the best on top. */
function rankingPlot(node, data) {
  const shown = data.settings.filter((one) => one.final_mean !== null).slice(0, 25).reverse();
  const labels = shown.map((one) => `${one.rank}. ${one.label}`);
  const seeds = { x: [], y: [] };
  shown.forEach((one, i) => one.finals.forEach((value) => { seeds.x.push(value); seeds.y.push(labels[i]); }));
  plot(node, [
    { ...seeds, mode: "markers", name: "each seed", marker: { color: faded(PALETTE[8], 0.7), size: 7, symbol: "line-ns-open", line: { width: 2 } } },
    {
      x: shown.map((one) => one.final_mean), y: labels, mode: "markers", name: "mean, 95% bootstrap interval",
      marker: { color: PALETTE[0], size: 10 },
      error_x: {
        type: "data", symmetric: false, color: PALETTE[0], thickness: 2,
        array: shown.map((one) => one.final_mean_high - one.final_mean), arrayminus: shown.map((one) => one.final_mean - one.final_mean_low),
      },
    },
  ], { height: 160 + 26 * shown.length, xaxis: { title: { text: data.metric } }, yaxis: { type: "category" }, margin: { l: 60, r: 14, t: 40, b: 60 }, legend: { orientation: "h", y: 1, yanchor: "bottom" } });
}

function rankingTable(data) {
  const interval = (one, name) => one[`${name}_mean`] === null ? "–" : `${number(one[`${name}_low`] ?? one[`${name}_mean_low`])} to ${number(one[`${name}_high`] ?? one[`${name}_mean_high`])}`;
  const keys = data.keys.map((key) => ({ name: data.short_names[key], key, number: data.settings.every((one) => one[key] === null || typeof one[key] === "number") }));
  return sortableTable([
    { name: "rank", key: "rank", number: true }, ...keys, { name: "seeds", key: "final_seeds", number: true },
    { name: "mean", key: "final_mean", number: true }, { name: "95% interval", key: "final_mean_low", cell: (one) => interval(one, "final") },
    { name: "median", key: "final_median", number: true }, { name: "IQM", key: "final_iqm", number: true },
    { name: "best over steps", key: "best_mean", number: true }, { name: "P(first beats it)", key: "best_beats_it", number: true },
    { name: "p (as good as the first)", key: "p_as_good_as_best", number: true },
    { name: "failed", key: "failed", number: true },
  ], data.settings, { sortBy: "rank" });
}

function sweepOverview(section, data) {
  const count = (status) => data.trials.filter((trial) => trial.status === status).length;
  const forest = el("div");
  section.append(
    el("div", { class: `card verdict ${{ true: "yes", false: "no" }[data.sure] ?? ""}` }, data.verdict.map((line) => el("p", {}, line))),
    el("div", { class: "facts", style: "margin-top: .7rem" }, fact("trials", data.trials.length), ...["finished", "running", "stopped", "out of time", "failed"].filter(count).map((status) => fact(status, count(status)))),
    el("div", { class: "headlines" }, sweepHeadline(data)),
    el("h2", {}, "Ranking"), el("div", { class: "card" }, forest), el("h2", {}, "Settings"), rankingTable(data),
    el("p", { class: "dim" }, "Intervals: 95%, Student's t over seeds (of the IQM: percentile bootstrap). p: Welch's test against the best setting, Holm-corrected. IQM: mean of the middle half. P(first beats it): that a run of the best setting is better than one of this."));
  rankingPlot(forest, data);
  for (const note of data.notes) section.append(el("p", { class: "card finding watch" }, note));
  for (const failure of data.errors) {
    section.append(el("details", { class: "card" }, el("summary", {}, `${failure.trial}: ${failure.status}`), el("pre", {}, failure.error)));
  }
}

/** A colour for each setting, the same in all plots. */
function settingColours(data) {
  const labels = [...new Set(data.curves.flatMap((curve) => curve.lines.map((line) => line.label)))];
  return new Map(labels.map((label, i) => [label, PALETTE[i % PALETTE.length]]));
}

function settingTraces(lines, colours, axis) {
  return lines.flatMap((line) => bandTraces(line.label, colours.get(line.label), line[axis] || [], line.y, line.low, line.high));
}

/** The sweep's metric by setting, over the steps. */
function sweepHeadline(data) {
  const curve = data.curves.find((one) => one.metric === data.metric);
  if (!curve) return null;
  const node = el("div");
  plot(node, settingTraces(curve.lines.slice(0, 5), settingColours(data), "step"), {
    height: 300, title: { text: `${curve.metric}, mean over seeds and 95% bootstrap interval, the best settings`, font: { size: 13 }, x: 0.02 }, xaxis: { title: { text: "step", font: { size: 11 } } },
    legend: { orientation: "v", font: { size: 11 } },
  });
  return el("div", { class: "card", "data-metric": curve.metric }, node);
}

function sweepCurves(section, data) {
  const state = { axis: "step", hidden: new Set() };
  const grid = el("div", { class: "grid" });
  const colours = settingColours(data);
  const labels = [...colours.keys()];
  const axes = Object.entries(AXES).filter(([name]) => data.curves.some((curve) => curve.lines.some((line) => line[name])));

  function draw() {
    forget(grid);
    for (const curve of data.curves) {
      const node = el("div");
      grid.append(el("div", { class: "card" }, node));
      node.style.minHeight = "330px";
      const lines = curve.lines.filter((line) => !state.hidden.has(line.label));
      whenSeen(node, () => plot(node, settingTraces(lines, colours, state.axis), {
        height: 330, showlegend: false, title: { text: curve.metric, font: { size: 13 }, x: 0.02 }, xaxis: { title: { text: AXES[state.axis], font: { size: 11 } } },
      }));
    }
  }

  section.append(el("div", { class: "controls" }, choice("over", axes, (value) => { state.axis = value; draw(); }, state.axis),
    el("span", { class: "dim" }, "mean over seeds and 95% bootstrap interval, the ten best settings")),
    el("div", { class: "controls" }, labels.map((label) => {
      const box = el("input", { type: "checkbox", checked: true, onchange: () => { state.hidden[box.checked ? "delete" : "add"](label); draw(); } });
      return el("label", { class: "line" }, box, el("i", { style: `background: ${colours.get(label)}` }), label);
    })), grid);
  draw();
}

/** One axis of the parallel coordinates: numbers as they are (as powers of ten, where they span several), words by place. */
function coordinate(label, values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  if (known.every((value) => typeof value === "number")) {
    const missing = Math.min(...known);
    const logarithmic = missing > 0 && Math.max(...known) / missing > 50;
    const change = (value) => (logarithmic ? Math.log10(value ?? missing) : value ?? missing);
    const dimension = { label: logarithmic ? `log₁₀ ${label}` : label, values: values.map(change) };
    const distinct = [...new Set(known)].sort((a, b) => a - b);
    return distinct.length > 8 ? dimension : { ...dimension, tickvals: distinct.map(change), ticktext: distinct.map((value) => number(value)) };
  }
  const words = [...new Set(values.map((value) => String(value ?? "not set")))].sort();
  return { label, values: values.map((value) => words.indexOf(String(value ?? "not set"))), tickvals: words.map((_, i) => i), ticktext: words };
}

function parametersPanel(section, data) {
  const shown = data.trials.filter((trial) => trial.final !== null);
  const [lines, bars] = [el("div"), el("div")];
  section.append(el("h2", {}, "Every trial as a line"), el("p", { class: "dim" }, "Drag along an axis to keep only the trials that pass there; drag a name to move the axis."), el("div", { class: "card" }, lines));
  section.append(el("h2", {}, "Which parameters matter"));
  const results = shown.map((trial) => trial.final);
  if (shown.length) {
    plot(lines, [{
      type: "parcoords", labelfont: { size: 13 }, tickfont: { size: 11 },
      line: { color: results, colorscale: SCALE, showscale: true, reversescale: data.mode === "min" },
      dimensions: [...data.keys, "seed"].filter((key) => new Set(shown.map((trial) => trial[key])).size > 1)
        .map((key) => coordinate(data.short_names[key] ?? key, shown.map((trial) => trial[key]))).concat([{ label: data.metric, values: results }]),
    }], { height: 420, margin: { l: 70, r: 40, t: 50, b: 20 } });
  }
  if (!data.importance.length) {
    section.append(el("p", { class: "dim" }, "Too few finished trials to judge."));
    return;
  }
  const ranked = [...data.importance].reverse();
  section.append(el("div", { class: "card" }, bars), el("p", { class: "dim" }, data.importance.map((one) =>
    `${one.key} ${one.matters ? `explains ${(100 * one.share).toFixed(0)}% of the variance` : "cannot be distinguished from chance"}`).join("; ") + ". Main effects only: what two parameters do together is not shown."));
  plot(bars, [
    { type: "bar", orientation: "h", x: ranked.map((one) => one.share), y: ranked.map((one) => one.key), marker: { color: ranked.map((one) => (one.matters ? PALETTE[0] : PALETTE[8])) }, name: "share of the variance", showlegend: false },
    { x: ranked.map((one) => one.noise), y: ranked.map((one) => one.key), mode: "markers", marker: { symbol: "line-ns-open", size: 18, color: PALETTE[1], line: { width: 2 } }, name: "what chance reaches in 5% of cases" },
  ], { height: 150 + 34 * ranked.length, xaxis: { title: { text: "share of the variance explained" }, range: [0, 1] }, margin: { l: 60, r: 14, t: 40, b: 40 }, legend: { orientation: "h", y: 1, yanchor: "bottom" } });
}

function trialsPanel(section, data) {
  const numeric = (key) => data.trials.every((trial) => trial[key] === null || typeof trial[key] === "number");
  const lineage = data.trials.some((trial) => trial.lineage) ? ["lineage"] : [];
  const columns = ["number", ...data.keys, "seed", "status", "final", "best", "steps", "minutes", "failures", ...lineage, "folder"];
  section.append(sortableTable(columns.map((key) => ({
    key, name: data.short_names[key] ?? key, number: numeric(key),
    cell: key === "folder" ? (trial) => el("a", { href: `trials/${encodeURIComponent(trial.folder)}/` }, trial.folder) : undefined,
  })), data.trials, { sortBy: "final", descending: data.mode === "max" }));
}

function sweepPages(data) {
  tab("Overview", (section) => sweepOverview(section, data));
  tab("Curves", (section) => sweepCurves(section, data));
  tab("Parameters", (section) => parametersPanel(section, data));
  tab("Trials", (section) => trialsPanel(section, data));
  tab("Definition", (section) => section.append(sortableTable([{ name: "key", key: "key" }, { name: "value", key: "value" }], data.definition)));
}
