/** The last values of a metric as a line of text's height. */
function sparkline(values) {
  if (values.length < 2) return el("span", { class: "dim" }, "–");
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const span = high - low || 1;
  const points = values.map((value, i) => `${((100 * i) / (values.length - 1)).toFixed(1)},${(22 - (20 * (value - low)) / span).toFixed(1)}`);
  const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  picture.setAttribute("viewBox", "0 0 100 24");
  picture.setAttribute("class", "spark");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  line.setAttribute("points", points.join(" "));
  picture.append(line);
  return picture;
}

function ago(seconds) {
  const passed = Math.max(0, Date.now() / 1000 - seconds);
  if (passed < 86400) return `${duration(Math.round(passed))} ago`;
  return `${Math.round(passed / 86400)} d ago`;
}

const CHOSEN = new Set();
const SHOWN = { trials: false };

/** A path without what all trials repeat: `rates/trials/0003_lr=0.1/run` is `rates: 0003_lr=0.1`. */
function shortName(id) {
  return id.replace(/\/trials\/(.*)\/run$/, ": $1");
}

function runsPanel(section, data) {
  if (!data.runs.length) {
    section.append(el("p", { class: "dim" }, `No run in ${data.root} yet: the first one appears here by itself.`));
    return;
  }
  const compare = el("button", { type: "button", onclick: () => {
    window.location.href = `/run?${[...CHOSEN].map((name) => `id=${encodeURIComponent(name)}`).join("&")}`;
  } }, "compare");
  const update = () => { compare.disabled = CHOSEN.size < 2; };
  const box = (row) => el("input", { type: "checkbox", checked: CHOSEN.has(row.id), "aria-label": `compare ${row.id}`, onchange: (event) => {
    if (event.target.checked) CHOSEN.add(row.id); else CHOSEN.delete(row.id);
    update();
  } });
  // Trials have their sweep's page; among the runs they are shown on request.
  const isTrial = (row) => data.sweeps.some((sweep) => row.id.startsWith(`${sweep.id}/`));
  const trials = data.runs.filter(isTrial).length;
  const rows = data.runs.filter((row) => SHOWN.trials || !isTrial(row)).map((row) => ({ ...row, last: row.value === null ? "" : `${row.metric} ${number(row.value, 3)}`, concerns: row.health.join(", ") || row.note }));
  const withTrials = el("input", { type: "checkbox", id: "trials", checked: SHOWN.trials, onchange: () => {
    SHOWN.trials = withTrials.checked;
    section.replaceChildren();
    runsPanel(section, data);
  } });
  section.append(el("div", { class: "controls" }, compare,
    trials ? el("label", {}, withTrials, `show ${trials} trial${trials === 1 ? "" : "s"} of sweeps`) : null,
    el("span", { class: "dim" }, data.root)), sortableTable([
    { name: "", key: "id", cell: box },
    { name: "run", key: "id", cell: (row) => el("a", { class: "run", title: row.id, href: `/run?id=${encodeURIComponent(row.id)}` }, row.id === "." ? row.name : shortName(row.id)) },
    { name: "concerns", key: "concerns" },
    { name: "state", key: "state", cell: (row) => el("span", { class: `state ${row.state}` }, row.state) },
    { name: "step", key: "step", number: true, cell: (row) => (row.step === null ? "–" : `${Math.max(0, row.step)} of ${row.of}`) },
    { name: "last", key: "last" },
    { name: "curve", key: "id", cell: (row) => sparkline(row.line) },
    { name: "changed", key: "changed", cell: (row) => ago(row.changed) },
  ], rows));
  update();
}

function indexPages(data) {
  tab("Runs", (section) => runsPanel(section, data));
  if (data.sweeps.length) {
    tab("Sweeps", (section) => section.append(sortableTable(
      [{ name: "sweep", key: "id", cell: (row) => el("a", { href: `/sweep?id=${encodeURIComponent(row.id)}` }, row.id) }], data.sweeps)));
  }
  if (data.recordings.length) {
    tab("Datasets", (section) => section.append(sortableTable(
      [{ name: "recorded episodes", key: "id", cell: (row) => el("a", { href: `/recording?id=${encodeURIComponent(row.id)}` }, row.id) }], data.recordings)));
  }
}
