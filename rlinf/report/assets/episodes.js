/** The steps of an episode or of a simulator's row, decision by decision. */
function tracePlot(trace, shown = ["reward", "advantage"]) {
  const node = el("div");
  // Choices among a few are points: lines between them would only be a fence.
  const chosen = (name, y) => name.startsWith("action") && y.every(Number.isInteger);
  const lines = Object.entries(trace).map(([name, y], i) => ({
    name, colour: PALETTE[i % PALETTE.length], x: y.map((_, step) => step), y, dots: chosen(name, y), stroke: !chosen(name, y), hidden: !shown.includes(name),
  }));
  plotLines(node, lines, { height: 190, legend: true, xLabel: "decision", whole: true });
  return node;
}

function episodeCard(row, knowsSuccess) {
  const success = row.success_at_end ? "at the end" : row.success_once ? "on the way" : "no";
  const facts = [["episode", row.key], ["return", number(row.total)], ["steps", row.length], ...(knowsSuccess ? [["success", success]] : [])];
  const cut = row.decisions - row.trace.reward.length;
  const actions = Object.keys(row.trace).filter((name) => name.startsWith("action"));
  return el("div", { class: `card response ${row.success_once ? "correct" : ""}` },
    el("div", { class: "head" }, facts.map(([name, value]) => el("span", {}, `${name} `, el("b", {}, value)))),
    tracePlot(row.trace, ["reward", ...(actions.length === 1 ? actions : [])]),
    cut > 0 ? el("p", { class: "dim" }, `The first ${number(row.trace.reward.length)} of ${number(row.decisions)} decisions.`) : null);
}

function videoCard(video, run) {
  const size = `${number(video.bytes / 1e6, 3)} MB`;
  if (video.data === null) {
    return el("div", { class: "card" }, el("p", {}, `${video.name} (${size}) is not in this page, whose videos end at ${number(run.video_limit / 1e6, 3)} MB. `,
      el("a", { href: `videos/${encodeURIComponent(video.name)}` }, `videos/${video.name}`), ` lies in ${run.path}.`));
  }
  const source = `data:${video.type};base64,${video.data}`;
  return el("div", { class: "card" }, el("p", { class: "dim" }, `${video.name}, ${size}`),
    video.type === "image/gif" ? el("img", { src: source, alt: video.name }) : el("video", { src: source, controls: true, loop: true, muted: true }));
}

function hasEpisodes(run) {
  return Object.keys(run.episodes.steps).length > 0 || run.videos.length > 0;
}

/** Evaluation episodes by step: their video where there is one, and what each did. */
function episodesPanel(section, run) {
  if (!hasEpisodes(run)) {
    section.append(el("p", {}, "This run kept no episodes."));
    return;
  }
  const filmed = new Set(Object.values(run.episodes.steps).flat().map((row) => row.video).filter(Boolean));
  const others = run.videos.filter((video) => !filmed.has(video.name));
  const choices = Object.entries(run.episodes.steps).map(([step, rows]) => [step, rows[0].video ? `${step} (video)` : step]);
  if (others.length) choices.push(["others", "other videos"]);
  // Many environments tell no success (null): nothing is said of it then.
  const knowsSuccess = Object.values(run.episodes.steps).flat().some((row) => row.success_once !== null);
  const body = el("div");

  function show(chosen) {
    forget(body);
    const rows = run.episodes.steps[chosen] || [];
    const name = rows[0]?.video;
    const video = run.videos.find((one) => one.name === name);
    const videos = chosen === "others" ? others : video ? [video] : [];
    if (name && !video) body.append(el("p", { class: "dim" }, `videos/${name} was removed.`));
    body.append(...videos.map((one) => videoCard(one, run)), el("div", { class: "grid wide" }, rows.map((row) => episodeCard(row, knowsSuccess))));
  }

  const latest = Object.keys(run.episodes.steps).at(-1) ?? "others";
  section.append(el("div", { class: "controls" }, choice("evaluation after step", choices, show, latest),
    run.episodes.left_out ? el("span", { class: "dim" }, `${run.episodes.left_out} further steps were left out`) : null), body);
  show(latest);
}
