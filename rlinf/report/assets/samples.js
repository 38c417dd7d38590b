/** Colour of a token by its log-probability: 0 (certain) is clear, -4 and below is full. */
function logprobColour(logprob) {
  return `rgba(229, 112, 58, ${Math.min(1, Math.max(0, -logprob / 4)) * 0.75})`;
}

/** Red for what the update or the group speaks against, blue for what it speaks for. */
function signedColour(value, scale) {
  const size = Math.min(1, Math.abs(value) / scale) * 0.7;
  return value >= 0 ? `rgba(47, 129, 247, ${size})` : `rgba(207, 34, 46, ${size})`;
}

const COLOURINGS = {
  logprob: { label: "log-probability", column: "logprobs", colour: logprobColour, ends: ["certain", "e⁻⁴"], sample: [0, -1, -2, -4].map(logprobColour) },
  advantage: { label: "advantage", column: "advantages", colour: (v) => signedColour(v, 2), ends: ["−2", "+2"], sample: [-2, -1, 0, 1, 2].map((v) => signedColour(v, 2)) },
  update: { label: "log-ratio after the update", column: "updated_logprobs", base: true, colour: (v) => signedColour(v, 0.2), ends: ["−0.2", "+0.2"], sample: [-0.2, 0, 0.2].map((v) => signedColour(v, 0.2)) },
  mismatch: { label: "learner − sampler log-probability", column: "old_logprobs", base: true, colour: (v) => signedColour(v, 0.2), ends: ["−0.2", "+0.2"], sample: [-0.2, 0, 0.2].map((v) => signedColour(v, 0.2)) },
};

/** The values that a colouring shows: a column, or what it adds to the log-probability it is compared with. */
function colouredValues(row, name) {
  const kind = COLOURINGS[name];
  const values = kind && row[kind.column];
  if (!values || !kind.base) return values;
  const before = name === "update" && row.old_logprobs ? row.old_logprobs : row.logprobs;
  return values.map((value, i) => (value === null ? null : value - before[i]));
}

/**
 * Which tokens the update moved past the clip range, on the side that the advantage pushes to. That is no clipping: a batch
 * that is used for one optimiser step is never clipped, and a further step would be held back at these tokens.
 */
function movedPastRange(row, [low, high]) {
  if (!row.updated_logprobs) return null;
  const before = row.old_logprobs || row.logprobs;
  return row.updated_logprobs.map((after, i) => {
    if (after === null) return false;
    const ratio = Math.exp(after - before[i]);
    const advantage = row.advantages ? row.advantages[i] : row.advantage;
    return (advantage > 0 && ratio > high) || (advantage < 0 && ratio < low);
  });
}

/** The tokens of a response, each as an element that shows its values. */
function tokenElements(row, colouring, clip) {
  const kind = COLOURINGS[colouring];
  const values = colouredValues(row, colouring);
  const moved = movedPastRange(row, clip);
  return row.pieces.map((piece, i) => {
    const shown = piece.replace(/\n/g, "⏎\n") || "·";
    const logprob = row.logprobs[i];
    if (logprob === null) return el("span", { class: "token masked", title: "masked: nothing is learned from this token" }, shown);
    const title = `log-prob ${number(logprob, 3)} (p ${number(Math.exp(logprob), 3)})` + (moved?.[i] ? ", outside the clip range after the update" : "");
    const token = el("span", { class: moved?.[i] ? "token moved" : "token", title }, shown);
    if (values) token.style.background = kind.colour(values[i]);
    return token;
  });
}

/** The picture at a data: URI. */
function pictureElement(uri) {
  return el("img", { class: "picture", src: uri, alt: "picture" });
}

const PICTURE = new RegExp("\ufff9(data:[^\ufffb]*)\ufffb");
const ANY_PICTURE = new RegExp("\ufff9[^\ufffb]*\ufffb", "g");

/** A text with the pictures that are marked in it. */
function withPictures(text) {
  return text.split(PICTURE).map((piece, i) => (i % 2 ? pictureElement(piece) : piece));
}

/** A text with a word instead of its pictures. */
function withoutPictures(text) {
  return text.replace(ANY_PICTURE, "[picture] ");
}

/** What is known of a turn: its tokens, the weights it was sampled with, its seconds, and its reward by terms. */
function turnWords(turn) {
  const words = [turn.role === null ? turn.speaker : `${turn.speaker} (${turn.role})`, `${turn.tokens} tokens`];
  if (turn.speaker !== "policy") words.push("masked");
  if (turn.versions?.length) words.push(`version ${turn.versions.join(" to ")}`);
  if (turn.seconds) words.push(turn.seconds < 0.1 ? `${number(1e3 * turn.seconds, 2)} ms` : `${number(turn.seconds, 2)} s`);
  const terms = Object.entries(turn.reward_terms || {}).map(([name, value]) => `${name} ${number(value)}`);
  if (turn.reward || terms.length) words.push(`reward ${number(turn.reward ?? 0)}${terms.length ? ` (${terms.join(", ")})` : ""}`);
  return words.join(", ");
}

/** A conversation: each turn with its speaker, the environment's marked as not the policy's. */
function transcript(row, tokens) {
  let begin = 0;
  return el("div", { class: "transcript" }, row.turns.map((turn) => {
    const own = tokens ? tokens.slice(begin, begin + turn.tokens) : withPictures(turn.text);
    begin += turn.tokens;
    return el("div", { class: `turn ${turn.speaker}` }, el("span", { class: "speaker" }, turnWords(turn)), ...(turn.pictures || []).map(pictureElement), el("pre", {}, own));
  }));
}

function responseText(row, colouring, clip) {
  const tokens = row.pieces ? tokenElements(row, colouring, clip) : null;
  const rest = row.cut_tokens ? el("span", { class: "dim" }, ` … ${row.cut_tokens} more tokens`) : null;
  if (row.turns) return el("div", {}, transcript(row, tokens), rest);
  return el("pre", {}, tokens ?? row.response ?? "", rest);
}

function responseCard(row, colouring, clip, prompt) {
  const moved = movedPastRange(row, clip);
  const facts = [
    ["reward", number(row.reward)], ["advantage", number(row.advantage)], ["verdict", row.verdict], ["found", row.extracted],
    ["decisions", row.slots], ["ended by", row.finish_reason],
    ["episode", row.episode], ["branch", row.branch], ["turns", row.turns?.length], ["past the clip range after the update", moved && `${moved.filter(Boolean).length} of ${row.slots}`],
  ].filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== "–");
  return el("div", { class: `card response ${row.verdict || ""}` },
    el("div", { class: "head" }, facts.map(([name, value]) => el("span", {}, `${name} `, el("b", {}, value)))),
    row.prompt !== prompt ? el("details", { class: "context" }, el("summary", {}, "the conversation so far"), el("pre", {}, withPictures(row.prompt))) : null,
    row.response !== undefined || row.pieces ? responseText(row, colouring, clip) : null,
    row.trace ? tracePlot(row.trace) : null);
}

function groupWords(rows) {
  const rewards = rows.map((row) => row.reward);
  const mean = rewards.reduce((a, b) => a + b, 0) / rewards.length;
  if (rows.length > 1 && rewards.every((reward) => reward === rewards[0])) {
    return `All ${rows.length} have reward ${number(mean)}: this group teaches nothing.`;
  }
  if (rows.length === 1) return "1 row.";
  return `${rows.length} rows, mean reward ${number(mean)}, best ${number(Math.max(...rewards))}.`;
}

/** Writes texts instead of their numbers, once for a page. */
function withTexts(samples) {
  if (!samples.texts) return;
  for (const row of Object.values(samples.steps).flat()) {
    if (row.prompt !== undefined) row.prompt = samples.texts[row.prompt];
    if (row.rendered !== undefined) row.rendered = samples.texts[row.rendered];
    if (row.pieces) row.pieces = row.pieces.map((number) => samples.texts[number]);
  }
  samples.texts = null;
}

/** The question, and the prompt that the policy read if it holds more: template, system prompt, tools. */
function promptCard(row) {
  const longer = row.rendered !== undefined && row.rendered.trim() !== row.prompt.trim();
  return el("div", { class: "card" },
    el("span", { class: "dim" }, "question"), el("pre", {}, withPictures(row.prompt)),
    longer ? el("details", { class: "read", open: true }, el("summary", {}, "prompt as the policy read it"), el("pre", {}, withPictures(row.rendered))) : null,
    (row.answer ?? "") === "" ? null : el("span", { class: "dim" }, `answer: ${row.answer}`));
}

function samplesPanel(section, run) {
  withTexts(run.samples);
  const steps = Object.keys(run.samples.steps);
  if (!steps.length) {
    section.append(el("p", {}, "This run wrote no samples (logging.samples_every)."));
    return;
  }
  const rows = Object.values(run.samples.steps).flat();
  const kinds = Object.entries(COLOURINGS).filter(([, kind]) => rows.some((row) => row.pieces && row[kind.column]));
  const state = { step: steps[steps.length - 1], group: null, colouring: kinds[0]?.[0], sort: "reward" };
  const groupSelect = el("select", { id: "group", onchange: () => { state.group = groupSelect.value; draw(); } });
  const legend = el("span", { class: "legend" });
  const body = el("div");

  function groups() {
    const found = new Map();
    for (const row of run.samples.steps[state.step]) found.set(String(row.group), [...(found.get(String(row.group)) || []), row]);
    return found;
  }

  function fill() {
    const found = groups();
    const varied = [...found].find(([, members]) => members.some((row) => row.reward !== members[0].reward));
    if (!found.has(state.group)) state.group = (varied ?? [...found][0])[0];
    groupSelect.replaceChildren(...[...found].map(([name, members]) =>
      el("option", { value: name, selected: name === state.group }, `${name}${members[0].prompt ? `: ${withoutPictures(members[0].prompt).slice(0, 80)}` : ""}`)));
    draw();
  }

  function draw() {
    const members = [...groups().get(state.group)];
    members.sort((a, b) => (b[state.sort] ?? 0) - (a[state.sort] ?? 0));
    const kind = COLOURINGS[state.colouring];
    legend.replaceChildren(...(kind ? [kind.ends[0], el("i", { style: `background: linear-gradient(90deg, ${kind.sample.join(", ")})` }), kind.ends[1]] : []));
    forget(body);
    const first = members[0];
    body.append(...[
      first.prompt !== undefined ? promptCard(first) : null,
      el("p", { class: "dim" }, groupWords(members)),
      ...members.map((row) => responseCard(row, state.colouring, run.clip, first.prompt)),
    ].filter(Boolean));
  }

  section.append(el("div", { class: "controls" },
    choice("step", steps.map((step) => [step, step]), (value) => { state.step = value; fill(); }, state.step),
    el("label", {}, "group", groupSelect),
    choice("sort by", [["reward", "reward"], ["advantage", "advantage"], ["slots", "length"]], (value) => { state.sort = value; draw(); }, state.sort),
    kinds.length ? choice("colour", [...kinds.map(([name, kind]) => [name, kind.label]), ["none", "none"]], (value) => { state.colouring = value; draw(); }, state.colouring) : null,
    legend,
    run.samples.left_out ? el("span", { class: "dim" }, `${run.samples.left_out} further steps were left out`) : null), body);
  fill();
}
