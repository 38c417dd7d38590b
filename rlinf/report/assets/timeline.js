const PROCESS_ROW = 15;

/** The timelines of a run: what took long by name, then a process for each process. */
function timelinePanel(section, run) {
  const drawn = el("div");
  const steps = run.timelines.map((one, i) => [String(i), `step ${one.step}`]);
  const show = (index) => drawn.replaceChildren(...timelineOf(run.timelines[Number(index)]));
  if (steps.length > 1) section.append(el("div", { class: "controls" }, choice("iteration", steps, show, "0")));
  section.append(drawn);
  show(0);
}

function timelineOf(line) {
  const columns = [
    { name: "what ran", key: "name" }, { name: "times", key: "count" }, { name: "seconds in all", key: "total_s" },
    { name: "longest, seconds", key: "longest_s" }, { name: "the longest was in", key: "longest" },
  ];
  const left = line.left_out ? ` ${number(line.left_out)} short or early spans are in the file alone.` : "";
  return [
    el("h2", {}, `Iteration ${line.step}: what took long`),
    el("p", { class: "dim" }, `${duration(line.seconds)} in all. Spans of one process may be inside of each other. Open ${line.file} in ui.perfetto.dev to zoom.${left}`),
    sortableTable(columns, line.longest),
    el("h2", {}, "What ran when"),
    legendOf(line),
    ...line.processes.map((process) => processOf(line, process)),
  ];
}

function colourOf(name) {
  return PALETTE[name % PALETTE.length];
}

function legendOf(line) {
  return el("p", { class: "legend" }, line.names.map((name, i) => el("span", {},
    el("i", { style: `background: ${colourOf(i)}` }), name)));
}

/** One process: a row for each of its tracks, spans at their times. */
function processOf(line, process) {
  const hidden = process.hidden ? el("p", { class: "dim" }, `${number(process.hidden)} more tracks that ended earlier are in the file alone.`) : null;
  const rows = process.tracks.filter((track) => track.spans.length).map((track) => el("div", { class: "track" },
    el("span", { class: "dim", title: track.name }, track.name),
    el("div", { class: "spans", style: `height: ${PROCESS_ROW}px` }, [...track.spans].sort((a, b) => b[2] - a[2]).map((span) => spanOf(line, process, track, span)))));
  if (!rows.length) return null;
  return el("div", { class: "card process" }, el("b", {}, process.name), rows, hidden);
}

function spanOf(line, process, track, [name, begin, seconds, details]) {
  const left = (100 * begin) / line.seconds;
  const width = Math.max(0.1, (100 * seconds) / line.seconds);
  const words = `${line.names[name]}: ${number(seconds, 3)} s from ${number(begin, 3)} s on; ${process.name}, ${track.name}${details ? `; ${details}` : ""}`;
  return el("i", { title: words, style: `left: ${left}%; width: ${width}%; background: ${colourOf(name)}` });
}
