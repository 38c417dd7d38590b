/** Round numbers from `low` to `high`, about `count` of them. */
function roundTicks(low, high, count = 4) {
  const span = high - low || 1;
  const power = 10 ** Math.floor(Math.log10(span / count));
  const width = [1, 2, 5, 10].map((digit) => digit * power).find((one) => span / one <= count);
  const first = Math.ceil(low / width);
  return Array.from({ length: Math.floor(high / width) - first + 1 }, (_, i) => Number(((first + i) * width).toPrecision(12)));
}

/** A row of a chart of bars: a name, a track with marks at their percentages, and the numbers in words. */
function barRow(name, marks, words) {
  return el("div", { class: "bar" }, el("span", { class: "name", title: name }, name), el("span", { class: "track" }, marks), el("span", { class: "words" }, words));
}

/** A mark of a track from one percentage to another. */
function mark(kind, from, to, title, colour) {
  return el("i", { class: kind, title, style: `left: ${from}%; width: ${Math.max(0, to - from)}%${colour ? `; background: ${colour}` : ""}` });
}

/** The stages of a step one after the other, and the whole of it. */
function waterfall(node, names, seconds) {
  const whole = seconds.reduce((a, b) => a + b, 0) || 1;
  let before = 0;
  const row = (name, from, value, colour) => {
    const words = `${number(value, 3)} s (${((100 * value) / whole).toFixed(0)}%)`;
    return barRow(name, mark("block", (100 * from) / whole, (100 * (from + value)) / whole, `${name}: ${words}`, colour), words);
  };
  node.classList.add("plot", "bars");
  node.replaceChildren(...names.map((name, i) => {
    before += seconds[i];
    return row(name, before - seconds[i], seconds[i], PALETTE[0]);
  }), row("whole step", 0, whole, PALETTE[8]));
}

/** The share of the variance that each parameter explains, and what chance reaches. */
function shares(node, importance) {
  node.classList.add("plot", "bars");
  node.replaceChildren(
    el("p", { class: "legend" }, el("span", {}, el("i", { style: `background: ${PALETTE[0]}` }), "share of the variance explained"),
      el("span", {}, el("i", { class: "upright", style: `background: ${PALETTE[1]}` }), "what chance reaches in 5% of cases")),
    ...importance.map((one) => {
      const words = `${(100 * one.share).toFixed(0)}%, chance ${(100 * one.noise).toFixed(0)}%`;
      return barRow(one.key, [
        mark("block", 0, 100 * Math.max(0, one.share), `${one.key}: ${words}`, one.matters ? PALETTE[0] : PALETTE[8]),
        mark("upright", 100 * one.noise, 100 * one.noise, `chance: ${number(one.noise, 3)}`, PALETTE[1]),
      ], words);
    }));
}

/** A mean with its interval and the single values behind it, in a row each. */
function intervals(node, rows, label) {
  const known = rows.flatMap((row) => [row.mean, row.low, row.high, ...row.values]).filter((value) => value !== null && value !== undefined);
  if (!known.length) return;
  const [least, most] = [Math.min(...known), Math.max(...known)];
  const room = (most - least) / 20 || Math.abs(least) / 10 || 1;
  const [low, high] = [least - room, most + room];
  const at = (value) => (100 * (value - low)) / (high - low);
  const ticks = roundTicks(low, high);
  const grid = () => ticks.map((value) => mark("line", at(value), at(value), undefined));
  node.classList.add("plot", "bars");
  node.replaceChildren(
    el("p", { class: "legend" }, el("span", {}, el("i", { class: "dot", style: `background: ${PALETTE[0]}` }), "mean, 95% bootstrap interval"),
      el("span", {}, el("i", { class: "upright", style: `background: ${PALETTE[8]}` }), "each seed")),
    ...rows.map((row) => {
      const sure = row.low !== null && row.low !== undefined;
      const interval = sure ? ` [${number(row.low, 3)}, ${number(row.high, 3)}]` : "";
      const words = `${number(row.mean, 3)}${interval}`;
      return barRow(row.name, [
        ...grid(), ...row.values.map((value) => mark("upright", at(value), at(value), `a seed: ${number(value)}`, PALETTE[8])),
        sure ? mark("span", at(row.low), at(row.high), words, PALETTE[0]) : null, mark("dot", at(row.mean), at(row.mean), words, PALETTE[0]),
      ], words);
    }),
    barRow("", ticks.map((value) => el("span", { class: "tick", style: `left: ${at(value)}%` }, tick(value))), label));
}
