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
    el("div", { class: "facts", style: "margin-top: .7rem" }, fact("trials", data.trials.length), ...["finished", "running", "stopped", "out of time", "interrupted", "failed"].filter(count).map((status) => fact(status, count(status)))),
    el("div", { class: "headlines" }, sweepHeadline(data)),
    el("h2", {}, "Ranking"), el("div", { class: "card" }, forest), el("h2", {}, "Settings"), rankingTable(data),
    el("p", { class: "dim" }, "Intervals: 95%, Student's t over seeds (of the IQM: percentile bootstrap). p: Welch's test against the best setting, Holm-corrected. IQM: mean of the middle half. P(first beats it): that a run of the best setting is better than one of this."));
  intervals(forest, data.settings.filter((one) => one.final_mean !== null).slice(0, 25).map((one) => ({
    name: `${one.rank}. ${one.label}`, mean: one.final_mean, low: one.final_mean_low, high: one.final_mean_high, values: one.finals,
  })), data.metric);
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

function settingLines(lines, colours, axis) {
  return lines.map((line) => ({ name: line.label, colour: colours.get(line.label), x: line[axis] || [], y: line.y, low: line.low, high: line.high }));
}

/** The sweep's metric by setting, over the steps. */
function sweepHeadline(data) {
  const curve = data.curves.find((one) => one.metric === data.metric);
  if (!curve) return null;
  const node = el("div");
  const title = `${curve.metric}, mean over seeds and 95% bootstrap interval, the best settings`;
  plotLines(node, settingLines(curve.lines.slice(0, 5), settingColours(data), "step"), { height: 250, title, legend: true, ...axisOptions("step") });
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
      const lines = curve.lines.filter((line) => !state.hidden.has(line.label));
      plotLines(node, settingLines(lines, colours, state.axis), { height: 270, title: curve.metric, legend: false, ...axisOptions(state.axis) });
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

function parametersPanel(section, data) {
  const shown = data.trials.filter((trial) => trial.final !== null);
  const [lines, bars] = [el("div"), el("div")];
  section.append(el("h2", {}, "Every trial as a line"), el("p", { class: "dim" }, "Drag along an axis to keep only the trials that pass there, click it to keep all again; drag a name to move the axis."), el("div", { class: "card" }, lines));
  section.append(el("h2", {}, "Which parameters matter"));
  if (shown.length) {
    const varied = [...data.keys, "seed"].filter((key) => new Set(shown.map((trial) => trial[key])).size > 1);
    const axes = varied.map((key) => coordinate(data.short_names[key] ?? key, shown.map((trial) => trial[key])));
    const results = shown.map((trial) => trial.final);
    parallelPlot(lines, [...axes, { label: data.metric, values: results, ticks: null }], results, data.mode === "min");
  }
  if (!data.importance.length) {
    section.append(el("p", { class: "dim" }, "Too few finished trials to judge."));
    return;
  }
  section.append(el("div", { class: "card" }, bars), el("p", { class: "dim" }, data.importance.map((one) =>
    `${one.key} ${one.matters ? `explains ${(100 * one.share).toFixed(0)}% of the variance` : "cannot be distinguished from chance"}`).join("; ") + ". Main effects only: what two parameters do together is not shown."));
  shares(bars, data.importance);
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
