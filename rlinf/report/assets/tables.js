/** A table that sorts by a click on a column's head and is filtered by words (all must occur in the row).

`cell(row)` may give an element; `only` is a switch, on at first, that leaves the rows it keeps.
@param {{name: string, key: string, number?: boolean, cell?: (row: any) => any}[]} columns
@param {any[]} rows
@param {{sortBy?: string, descending?: boolean, rowClass?: (row: any) => string, only?: {label: string, keep: (row: any) => boolean}}} options */
function sortableTable(columns, rows, { sortBy = null, descending = false, rowClass = () => "", only = null } = {}) {
  let order = { key: sortBy, descending };
  let words = [];
  let restricted = only !== null;
  const texts = rows.map((row) => columns.map((column) => String(row[column.key] ?? "")).join(" ").toLowerCase());
  const body = el("tbody");
  const count = el("span", { class: "dim" });
  const heads = columns.map((column) => el("th", { class: column.number ? "number" : "", onclick: () => sort(column) }));

  function sort(column) {
    order = { key: column.key, descending: order.key === column.key ? !order.descending : Boolean(column.number) };
    draw();
  }

  function compare(a, b) {
    const [x, y] = [a[order.key], b[order.key]];
    const missing = Number(x === null || x === undefined) - Number(y === null || y === undefined);
    if (missing) return missing;
    const sign = order.descending ? -1 : 1;
    return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x ?? "").localeCompare(String(y ?? "")));
  }

  function draw() {
    let shown = rows.filter((row, i) => words.every((word) => texts[i].includes(word)) && (!restricted || only.keep(row)));
    if (order.key) shown = [...shown].sort(compare);
    heads.forEach((head, i) => {
      const arrow = columns[i].key === order.key ? (order.descending ? " ↓" : " ↑") : "";
      head.textContent = columns[i].name + arrow;
    });
    body.replaceChildren(...shown.map((row) => el("tr", { class: rowClass(row) }, columns.map((column) =>
      el("td", { class: column.number ? "number" : "" }, column.cell ? column.cell(row) : column.number ? number(row[column.key]) : row[column.key] ?? "–")))));
    count.textContent = `${shown.length} of ${rows.length}`;
  }

  const filter = el("input", { type: "search", placeholder: "filter…", "aria-label": "filter", oninput: () => {
    words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    draw();
  } });
  const box = only && el("input", { type: "checkbox", checked: restricted, onchange: () => { restricted = box.checked; draw(); } });
  draw();
  return el("div", {},
    el("div", { class: "controls" }, filter, only && el("label", {}, box, only.label), count),
    el("div", { class: "table" }, el("table", {}, el("thead", {}, el("tr", {}, heads)), body)));
}
