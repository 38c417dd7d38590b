function runFacts(run) {
  const [first, last] = [run.series.step[0], run.series.step[run.series.step.length - 1]];
  // Supervised steps have numbers below 0; 0 is the evaluation after them.
  const supervised = Math.min(last + 1, 0) - first;
  const steps = last <= 0 && first < 0 ? fact("supervised steps", number(supervised)) : fact("steps", number(last));
  const facts = [fact("status", run.status), steps, fact("training time", duration(run.wall_s ?? (run.series["axis/minutes"]?.at(-1) ?? 0) * 60))];
  for (const [name, value] of Object.entries(run.final)) {
    if (!/\/(ci_low|ci_high|n)$/.test(name) && facts.length < 7) {
      const [low, high] = [run.final[`${name}/ci_low`], run.final[`${name}/ci_high`]];
      const interval = low !== undefined ? ` [${number(low, 3)}, ${number(high, 3)}]` : "";
      const before = run.initial[name] !== undefined ? `, before ${number(run.initial[name], 3)}` : "";
      facts.push(fact(`${name}${interval}${before}`, number(value, 3)));
    }
  }
  return el("div", { class: "facts" }, facts);
}

function healthList(run) {
  if (!run.health.length) return el("p", { class: "dim" }, "Too few steps to judge.");
  return el("div", {}, run.health.map((finding) => el("div", { class: `card finding ${finding.level}` },
    el("span", { class: "level" }, finding.level), el("b", {}, finding.title), el("span", {}, finding.words))));
}

/** Success by task, in the first and in the last evaluation. */
function taskTable(run) {
  const rows = run.tasks.map((row) => ({ ...row, interval: intervalText(row.low, row.high) }));
  return sortableTable(
    [{ name: "task", key: "task" }, { name: "before", key: "before", number: true }, { name: "now", key: "value", number: true },
      { name: "95% interval", key: "interval" }, { name: "episodes", key: "count", number: true }], rows);
}

/** What the policy listens to: a row for each input that was changed in an evaluation; a line if none was. */
function listeningTable(run) {
  if (run.listening.every((row) => row.value === null)) {
    return el("p", { class: "dim" }, run.listening.map((row) => `${row.changed}: ${row.verdict}`).join("; "));
  }
  const rows = run.listening.map((row) => ({ ...row, interval: row.value === null ? "" : `[${number(row.low, 3)}, ${number(row.high, 3)}]` }));
  return sortableTable(
    [{ name: "change", key: "changed" }, { name: "without it", key: "usual", number: true }, { name: "with it", key: "value", number: true },
      { name: "95% interval", key: "interval" }, { name: "reading", key: "verdict" }], rows);
}

function overviewPanel(section, runs) {
  for (const note of runs.flatMap((run) => run.notes)) section.append(el("p", { class: "card finding watch" }, note));
  // Facts, then the curve; of several runs the curves are one picture that compares them.
  if (runs.length > 1) section.append(headlineCurves(runs));
  for (const run of runs) {
    section.append(el("h2", {}, runs.length > 1 ? run.label : "At a glance"), runFacts(run));
    if (runs.length === 1) section.append(headlineCurves(runs));
    if (run.tasks.length) section.append(el("h2", {}, "By task"), taskTable(run));
    section.append(el("h2", {}, "Health"), healthList(run));
    if (run.listening.length) section.append(el("h2", {}, "What the policy listens to"), listeningTable(run));
  }
}

function timePanel(section, runs) {
  for (const run of runs) {
    const node = el("div");
    const names = run.stages.map(([name]) => name);
    const seconds = run.stages.map(([, value]) => value);
    const title = runs.length > 1 ? `${run.label}: ` : "";
    section.append(el("h2", {}, `${title}seconds of a step, by stage`));
    if (!names.length) {
      section.append(el("p", { class: "dim" }, "No step was timed."));
      continue;
    }
    section.append(el("div", { class: "card" }, node));
    waterfall(node, names, seconds);
    stalenessPanel(section, run, title);
  }
}

/** How old the tokens of each batch were, and who waited for whom, of runs whose samplers work concurrently with the learner. */
function stalenessPanel(section, run, title) {
  const ages = Object.keys(run.series).filter((name) => name.startsWith("rollout/age/")).sort((a, b) => Number(a.split("/")[2]) - Number(b.split("/")[2]));
  const waits = [["time/learner_idle_s", "the learner for samples"], ["time/samplers_idle_s", "samplers for newer weights"]].filter(([name]) => run.series[name]);
  // Steps of a warm start are below 1 and have neither.
  const trained = run.series.step.map((_, at) => at).filter((at) => Number(run.series.step[at]) > 0);
  const steps = trained.map((at) => run.series.step[at]);
  if (ages.length) {
    const node = el("div");
    section.append(el("h2", {}, `${title}age of the tokens of a batch, in training iterations`), el("div", { class: "card" }, node));
    const lines = ages.map((name, i) => ({ name: name.split("/")[2], colour: PALETTE[i % PALETTE.length], x: steps, y: trained.map((at) => run.series[name][at]) }));
    plotLines(node, lines, { stacked: true, legend: true, yLabel: "share", range: [0, 1], ...axisOptions("step") });
  }
  if (waits.length) {
    const node = el("div");
    section.append(el("h2", {}, `${title}who waited for whom`), el("div", { class: "card" }, node));
    const lines = waits.map(([name, label], i) => ({ name: label, colour: PALETTE[i], x: steps, y: trained.map((at) => run.series[name][at]) }));
    plotLines(node, lines, { legend: true, yLabel: "seconds", fromZero: true, ...axisOptions("step") });
  }
}

function configPanel(section, run) {
  section.append(el("h2", {}, "Configuration"), sortableTable(
    [{ name: "key", key: "key" }, { name: "value", key: "value" }, { name: "default", key: "default" }], run.config,
    { rowClass: (row) => (row.changed ? "changed" : ""), only: { label: "only what differs from the defaults", keep: (row) => row.changed } }));
  const { versions = {}, ...machine } = run.machine;
  const rows = [...Object.entries(machine), ...Object.entries(versions)].map(([key, value]) => ({ key, value: value ?? "unknown" }));
  section.append(el("h2", {}, "Machine, versions and commit"), sortableTable([{ name: "what", key: "key" }, { name: "is", key: "value" }], rows));
}

/** The shortest endings of paths that distinguish them. */
function endings(paths) {
  const parts = paths.map((path) => path.split("/").filter(Boolean));
  const longest = Math.max(...parts.map((part) => part.length));
  for (let count = 1; count < longest; count += 1) {
    const found = parts.map((part) => part.slice(-count).join("/"));
    if (new Set(found).size === paths.length) return found;
  }
  return paths;
}

/** A panel about one run at a time, with a choice between several. */
function perRun(section, runs, build) {
  const body = el("div");
  const show = (index) => { forget(body); build(body, runs[Number(index)]); };
  if (runs.length > 1) section.append(el("div", { class: "controls" }, choice("run", runs.map((run, i) => [String(i), run.label]), show, "0")));
  section.append(body);
  show(0);
}

function runPages(runs, comparisons) {
  const names = runs.map((run) => run.name);
  const labels = new Set(names).size === names.length ? names : endings(runs.map((run) => run.path));
  runs.forEach((run, i) => { run.label = labels[i]; });
  tab("Overview", (section) => overviewPanel(section, runs));
  tab("Curves", (section) => curvesPanel(section, runs));
  tab("Time", (section) => timePanel(section, runs));
  const timed = runs.filter((run) => run.timelines.length);
  if (timed.length) tab("Timeline", (section) => perRun(section, timed, timelinePanel));
  tab("Samples", (section) => perRun(section, runs, samplesPanel));
  if (runs.some(hasEvaluations)) tab("Evaluations", (section) => evaluationsPanel(section, runs, comparisons));
  if (runs.some(hasEpisodes)) tab("Episodes", (section) => perRun(section, runs, episodesPanel));
  tab("Configuration", (section) => perRun(section, runs, configPanel));
}
