/** The steps of an episode or of a simulator's row, decision by decision. */
function tracePlot(trace, shown = ["reward", "advantage"], xLabel = "decision") {
  const node = el("div");
  // Choices among a few are points: lines between them would only be a fence.
  const chosen = (name, y) => name.startsWith("action") && y.every(Number.isInteger);
  const lines = Object.entries(trace).map(([name, y], i) => ({
    name, colour: PALETTE[i % PALETTE.length], x: y.map((_, step) => step), y, dots: chosen(name, y), stroke: !chosen(name, y), hidden: !shown.includes(name),
  }));
  plotLines(node, lines, { height: 190, legend: true, xLabel, whole: true });
  return node;
}

/** The columns of actions of an episode. */
function actionNames(row) {
  return Object.keys(row.trace).filter((name) => name.startsWith("action"));
}

function successWords(row) {
  return row.success_at_end ? "at the end" : row.success_once ? "on the way" : "no";
}

function episodeHead(row) {
  const facts = [["episode", row.key], ["task", row.task || null], ["return", number(row.total)], ["steps", row.length],
    ["decisions", row.decisions === row.length ? null : row.decisions], ["success", row.success_once === null ? null : successWords(row)]];
  return el("div", { class: "head" }, facts.filter(([, value]) => value !== null && value !== undefined).map(([name, value]) => el("span", {}, `${name} `, el("b", {}, value))));
}

/** An episode among others: what it reached and its rewards. */
function episodeCard(row, open) {
  const actions = actionNames(row);
  return el("div", { class: `card response ${row.success_once ? "correct" : ""}` }, episodeHead(row),
    tracePlot(row.trace, ["reward", ...(actions.length === 1 ? actions : [])], row.chunk === undefined ? "decision" : "step"),
    el("button", { type: "button", onclick: open }, "step by step"));
}

function videoSource(video) {
  return `data:${video.type};base64,${video.data}`;
}

/** Where a video is that the page does not hold. */
function videoElsewhere(video, source) {
  return el("p", {}, `${video.name} (${number(video.bytes / 1e6, 3)} MB) is not in this page, whose videos end at ${number(source.video_limit / 1e6, 3)} MB. `,
    el("a", { href: `videos/${encodeURIComponent(video.name)}` }, `videos/${video.name}`), ` lies in ${source.path}.`);
}

function videoCard(video, source) {
  if (video.data === null) return el("div", { class: "card" }, videoElsewhere(video, source));
  return el("div", { class: "card" }, el("p", { class: "dim" }, `${video.name}, ${number(video.bytes / 1e6, 3)} MB`),
    video.type === "image/gif" ? el("img", { src: videoSource(video), alt: video.name }) : el("video", { src: videoSource(video), controls: true, loop: true, muted: true }));
}

/**
 * The step of an episode that is shown. Plots, slider and film follow it, and each of them sets it.
 * @typedef {{step: number, last: number, watchers: Set<() => void>, charts: Set<uPlot>, seek: (step: number) => void}} Clock
 * @typedef {{tile: number, grid: [number, number], fps: number, knots: [number, number][]}} Film
 */

/** @returns {Clock} from step 0 to `last`, the steps of the whole episode. */
function clockUntil(last) {
  const clock = { step: 0, last, watchers: new Set(), charts: new Set(), seek: (step) => {
    clock.step = Math.min(last, Math.max(0, Math.round(step)));
    clock.watchers.forEach((watcher) => watcher());
  } };
  return clock;
}

/** The steps done at a time of the film, in seconds. Steps lie on a line from knot to knot; after the last they stay. */
function stepAt(film, seconds) {
  const frame = Math.floor(seconds * film.fps + 1e-6);
  const after = film.knots.findIndex(([known]) => known >= frame);
  if (after <= 0) return film.knots.at(after)[1];
  const [[from, low], [to, high]] = [film.knots[after - 1], film.knots[after]];
  return Math.floor(low + ((frame - from) * (high - low)) / (to - from));
}

/** The middle of the first frame that shows a step, in seconds. */
function timeOf(film, step) {
  const after = film.knots.findIndex(([, done]) => done >= step);
  let [frame] = film.knots.at(after);
  if (after > 0) {
    const [[from, low], [to, high]] = [film.knots[after - 1], film.knots[after]];
    frame = Math.ceil(from + ((step - low) * (to - from)) / (high - low));
  }
  return (frame + 0.5) / film.fps;
}

/** The part of a film that shows one episode, with a button that plays it; it follows the clock, and sets it while it plays. */
function filmOf(video, film, clock) {
  const [columns, rows] = film.grid;
  const [column, row] = [film.tile % columns, Math.floor(film.tile / columns)];
  const shown = el("video", { src: videoSource(video), muted: true, playsinline: true, preload: "auto",
    style: `width: ${100 * columns}%; transform: translate(${(-100 * column) / columns}%, ${(-100 * row) / rows}%)` });
  shown.muted = true;
  const frame = el("div", { class: "tile" }, shown);
  const play = el("button", { type: "button", class: "play", onclick: () => {
    if (!shown.paused) { shown.pause(); return; }
    if (clock.step >= stepAt(film, Infinity)) clock.seek(0);
    shown.play();
  } }, "play");
  shown.addEventListener("loadedmetadata", () => {
    frame.style.aspectRatio = `${shown.videoWidth / columns} / ${shown.videoHeight / rows}`;
    follow();
  });

  function follow() {
    if (stepAt(film, shown.currentTime) !== clock.step) shown.currentTime = timeOf(film, clock.step);
  }

  function lead() {
    if (!shown.isConnected) shown.pause();
    if (shown.paused) return;
    const step = stepAt(film, shown.currentTime);
    if (step !== clock.step) clock.seek(step);
    if (step >= clock.last) shown.pause();
    else requestAnimationFrame(lead);
  }
  shown.addEventListener("play", () => { play.textContent = "pause"; lead(); });
  shown.addEventListener("pause", () => { play.textContent = "play"; });
  clock.watchers.add(follow);
  return el("div", { class: "film" }, frame, play);
}

/** Rewards and actions over the steps of an episode, one below the other. */
function alignedPlots(row, clock) {
  // Earlier versions kept one value for each decision.
  const chunk = row.chunk ?? Math.ceil(row.length / row.decisions);
  const each = row.chunk === undefined ? chunk : 1;
  const names = actionNames(row);
  const { reward } = row.trace;
  const x = (reward ?? row.trace[names[0]]).map((_, at) => Math.min(row.length, each * (at + 1)));
  const marks = chunk > 1 ? Array.from({ length: Math.ceil(row.length / chunk) }, (_, decision) => chunk * decision) : [];
  const few = (y) => row.discrete ?? y.every(Number.isInteger);
  const lines = names.map((name, i) => {
    const y = row.trace[name];
    return { name: names.length > 1 ? name.replace("action ", "") : "action", colour: PALETTE[(i + 1) % PALETTE.length], x, y, dots: few(y), stroke: !few(y) };
  });
  const options = { xLabel: "step", whole: true, clock };
  const [rewards, actions] = [el("div", { class: "rewards" }), el("div", { class: "actions" })];
  if (reward) plotLines(rewards, [{ name: "reward", colour: PALETTE[0], x, y: reward }], { ...options, title: "reward", height: 150, marks });
  const more = row.dimensions > names.length ? ` (the first ${names.length} of ${row.dimensions} dimensions)` : "";
  if (names.length) plotLines(actions, lines, { ...options, title: `action${more}`, height: 230, marks, legend: names.length > 1 });
  const cut = row.length - x.at(-1);
  const notes = [
    marks.length ? `Upright lines: a decision of ${chunk} steps begins.` : null,
    cut > 0 ? `The last ${number(cut)} steps were not kept.` : null,
  ].filter(Boolean);
  return [reward ? rewards : null, names.length ? actions : null, notes.length ? el("p", { class: "dim line" }, notes.join(" ")) : null];
}

/** The numbers of the shown step in words. A value belongs to the step that it was given for: step 1 is the first. */
function stepWords(row, clock) {
  const chunk = row.chunk ?? Math.ceil(row.length / row.decisions);
  const at = row.chunk === undefined ? Math.ceil(clock.step / chunk) - 1 : clock.step - 1;
  const words = [`step ${clock.step} of ${row.length}`];
  if (chunk > 1 && clock.step) words.push(`decision ${Math.ceil(clock.step / chunk)} of ${row.decisions}`);
  const { reward } = row.trace;
  if (reward?.[at] !== undefined) words.push(`reward ${number(reward[at], 3)}`, `return so far ${number(reward.slice(0, at + 1).reduce((sum, one) => sum + one, 0), 4)}`);
  const actions = actionNames(row).slice(0, 8).map((name) => row.trace[name][at]);
  if (actions[0] !== undefined) words.push(`action ${actions.map((value) => number(value, 3)).join(", ")}`);
  return words.join(" · ");
}

/** One episode: its instruction, film, rewards and actions over one axis of steps. */
function episodeView(row, video, source) {
  const clock = clockUntil(row.length);
  const filmed = row.film && video && video.data !== null && video.type !== "image/gif";
  const words = el("p", { class: "step", "aria-live": "off" });
  const slider = el("input", { type: "range", min: "0", max: String(row.length), step: "1", "aria-label": "step", oninput: () => clock.seek(Number(slider.value)) });
  clock.watchers.add(() => {
    slider.value = String(clock.step);
    words.textContent = stepWords(row, clock);
  });
  const node = el("div", { class: `card response episode ${row.success_once ? "correct" : ""}` }, episodeHead(row),
    row.instruction ? el("p", { class: "instruction" }, row.instruction) : null,
    video && video.data === null ? videoElsewhere(video, source) : null,
    el("div", { class: filmed ? "aligned filmed" : "aligned" },
      filmed ? filmOf(video, row.film, clock) : null,
      el("div", { class: "over-time" }, words, slider, ...alignedPlots(row, clock))));
  clock.seek(0);
  return node;
}

/** The pages about a dataset of episodes. */
function recordingPages(data) {
  tab("Episodes", (section) => {
    const rows = data.episodes.steps.recorded;
    const solved = rows.filter((row) => row.success_once).length;
    const share = rows.some((row) => row.success_once !== null) ? [fact("with success, of those here", `${solved} of ${rows.length}`)] : [];
    section.append(el("div", { class: "facts" }, fact("episodes", number(data.count)), fact("steps of those here", number(rows.reduce((sum, row) => sum + row.length, 0))), share),
      ...data.notes.map((note) => el("p", { class: "card finding watch" }, note)));
    episodesPanel(section, data);
  });
}

function hasEpisodes(run) {
  return Object.keys(run.episodes.steps).length > 0 || run.videos.length > 0;
}

/** Evaluation episodes by step, or recorded ones: each step by step with its film, or all of them. */
function episodesPanel(section, source) {
  if (!hasEpisodes(source)) {
    section.append(el("p", {}, "This run kept no episodes."));
    return;
  }
  const filmed = new Set(Object.values(source.episodes.steps).flat().map((row) => row.video).filter(Boolean));
  const others = source.videos.filter((video) => !filmed.has(video.name));
  const choices = Object.entries(source.episodes.steps).map(([step, rows]) => [step, rows[0].video ? `${step} (video)` : step]);
  if (others.length) choices.push(["others", "other videos"]);
  const body = el("div");
  const episode = el("select", { onchange: () => show() });
  const chooser = el("label", {}, "episode", episode);
  let step = Object.keys(source.episodes.steps).at(-1) ?? "others";

  function fill() {
    const rows = source.episodes.steps[step] || [];
    const before = episode.value;
    const named = (row) => `${row.key}: return ${number(row.total)}${row.success_once === null ? "" : `, success ${successWords(row)}`}`;
    episode.replaceChildren(...rows.map((row, i) => el("option", { value: String(i) }, named(row))), ...(rows.length > 1 ? [el("option", { value: "all" }, "all")] : []));
    if ([...episode.options].some((option) => option.value === before)) episode.value = before;
    chooser.hidden = !rows.length;
    show();
  }

  function show() {
    forget(body);
    const rows = source.episodes.steps[step] || [];
    if (step === "others") {
      body.append(...others.map((one) => videoCard(one, source)));
      return;
    }
    const row = rows[Number(episode.value)];
    const name = (row ?? rows[0]).video;
    const video = source.videos.find((one) => one.name === name);
    if (name && !video) body.append(el("p", { class: "dim" }, `videos/${name} was removed.`));
    if (row) {
      // Earlier versions did not write which part of the film is of which episode.
      if (video && !row.film) body.append(videoCard(video, source));
      body.append(episodeView(row, row.film ? video : null, source));
      return;
    }
    const open = (i) => () => { episode.value = String(i); show(); };
    if (video) body.append(videoCard(video, source));
    body.append(el("div", { class: "grid wide" }, rows.map((one, i) => episodeCard(one, open(i)))));
  }

  section.append(el("div", { class: "controls" },
    source.recorded ? null : choice("evaluation after step", choices, (value) => { step = value; fill(); }, step), chooser,
    source.episodes.left_out ? el("span", { class: "dim" }, `${source.episodes.left_out} further ${source.recorded ? "episodes" : "steps"} were left out`) : null), body);
  fill();
}
