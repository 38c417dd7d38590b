function hasEvaluations(run) {
  return (run.evaluations ?? []).length > 0;
}

function intervalText(low, high) {
  return `[${number(low, 3)}, ${number(high, 3)}]`;
}

/** The evaluations of `rlinf eval`, and the paired differences of those that have the same tasks. */
function evaluationsPanel(section, runs, comparisons) {
  const rows = runs.flatMap((run) => run.evaluations.map((row) => ({ ...row, run: run.label, interval: intervalText(row.low, row.high) })));
  section.append(el("h2", {}, "Evaluations"), sortableTable(
    [{ name: "run", key: "run" }, { name: "step", key: "step", number: true }, { name: "data", key: "data" },
      { name: "responses a task", key: "samples", number: true }, { name: "temperature", key: "temperature", number: true },
      { name: "metric", key: "metric" }, { name: "value", key: "value", number: true }, { name: "95% interval", key: "interval" },
      { name: "tasks", key: "tasks", number: true }, { name: "file", key: "file" }], rows));
  if (!comparisons.length) return;
  section.append(el("h2", {}, "Differences, task by task"),
    el("p", { class: "dim" }, "B minus A over the same tasks; 95% interval of Student's t over the tasks' differences, p of a paired permutation test."),
    sortableTable(
      [{ name: "A", key: "a" }, { name: "B", key: "b" }, { name: "metric", key: "metric" },
        { name: "A is", key: "first", number: true }, { name: "B is", key: "second", number: true },
        { name: "difference", key: "difference", number: true }, { name: "95% interval", key: "interval" },
        { name: "p", key: "p_value", number: true }, { name: "tasks", key: "tasks", number: true }],
      comparisons.map((row) => ({ ...row, interval: intervalText(row.low, row.high) }))));
}
