// Making elements.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const ICONS = {
  overview: "M4 19V11M10 19V5M16 19v-9M21 19H3",
  collections: "M4 6c0-1.700 3.600-3 8-3s8 1.300 8 3-3.600 3-8 3-8-1.300-8-3zM4 6v12c0 1.700 3.600 3 8 3s8-1.300 8-3V6M4 12c0 1.700 3.600 3 8 3s8-1.300 8-3",
  query: "M5 5l6 6-6 6M13 18h6",
  operations: "M3 12h4l3-8 4 16 3-8h4",
  slow: "M12 8v5l3 2M12 21a8 8 0 100-16 8 8 0 000 16zM9 2h6",
  users: "M12 11a4 4 0 100-8 4 4 0 000 8zM4 21c.5-4 3.500-6 8-6s7.500 2 8 6",
  changes: "M4 7h13l-3-3M20 17H7l3 3",
  backups: "M4 8h16v12H4zM3 4h18v4H3zM10 12h4",
  set: "M9 3h6v5H9zM3 16h6v5H3zM15 16h6v5h-6zM12 8v4M6 16v-4h12v4",
  theme: "M12 3a9 9 0 109 9 7 7 0 01-9-9z",
  help: "M12 21a9 9 0 100-18 9 9 0 000 18zM9.500 9.500a2.500 2.500 0 115 .3c0 1.700-2.500 2-2.500 3.700M12 17v.01",
  exit: "M14 4h5v16h-5M10 8l-4 4 4 4M6 12h9",
  leaf: "M5 21C7 14 11 8 19 3M8 15.500c-2.500-.4-4-1.800-4.600-4 2.600-.2 4.600 1 5.400 2.700M11.200 11c-2-.9-3-2.500-3-4.700 2.400.4 4 1.800 4.300 3.300M8.500 15c2.300 1.200 4.500 1 6.500-.5-1.400-1.900-3.400-2.400-5.200-1.600M12 10.300c2.200.8 4.200.4 5.800-1.200-1.500-1.600-3.300-1.800-4.800-.9",
};

export const icon = (name) => s(
  "svg",
  { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" },
  s("path", { d: ICONS[name] }),
);

// A table from columns: {title, cell, number, class, rare}. A rare column is left out where no row has a value for it; one of the class
// "more" is left out on narrow screens. `detail` makes a second line for each row.
export function table(columns, rows, { label, row: attributes, detail } = {}) {
  const shown = columns.filter((column) => !column.rare || rows.some((row) => (column.cell(row) ?? "–") !== "–"));
  const names = (column) => [column.number && "number", column.class].filter(Boolean).join(" ") || null;
  const lines = (row) => [
    h("tr", { class: detail && "main", ...attributes?.(row) }, shown.map((column) => h("td", { class: names(column) }, column.cell(row) ?? "–"))),
    detail && h("tr", { class: "detail" }, h("td", { colspan: shown.length }, h("div", {}, detail(row)))),
  ];
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label ?? "Table" }, h("table", {},
    h("thead", {}, h("tr", {}, shown.map((column) => h("th", { scope: "col", class: names(column)?.replace("mono", "") }, column.title)))),
    h("tbody", {}, rows.map(lines))));
}

export const card = (title, ...children) => h("section", { class: "card" }, title && h("h2", {}, title), children);

export const empty = (title, text) => h("div", { class: "empty" }, h("p", { class: "strong" }, title), text && h("p", {}, text));

export const failure = (error) => h("div", { class: "failure", role: "alert" },
  h("p", { class: "strong" }, error.codeName ? `${error.codeName} (${error.code})` : "That did not work"),
  h("p", {}, error.message));

// Asks before something that cannot be undone. Resolves to whether it is wanted.
export function confirm(title, text, action) {
  return new Promise((resolve) => {
    const close = (value) => () => { dialog.close(); resolve(value); };
    const dialog = h("dialog", { "aria-labelledby": "confirm-title", oncancel: () => resolve(false), onclose: () => dialog.remove() },
      h("h2", { id: "confirm-title" }, title),
      h("p", {}, text),
      h("div", { class: "row end" },
        h("button", { type: "button", onclick: close(false) }, "Cancel"),
        h("button", { type: "button", class: "danger", onclick: close(true) }, action)));
    document.body.append(dialog);
    dialog.showModal();
  });
}

let toastTimer;

// Tells what was done, for some seconds.
export function toast(text) {
  document.querySelector(".toast")?.remove();
  clearTimeout(toastTimer);
  const note = h("div", { class: "toast", role: "status" }, text);
  document.body.append(note);
  toastTimer = setTimeout(() => note.remove(), 4000);
}
