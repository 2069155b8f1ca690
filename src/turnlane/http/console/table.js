// A table whose headings sort, and whose rows stay while they are the same. On a phone each row is a card.

import { element } from "./dom.js";
import { keep } from "./keep.js";

const ROWS_MAX = 1000; // the server answers no more at once

// columns: [{ title, cell(row), by(row), number }]; `by` makes the column sortable, `key(row)` tells rows apart.
export function table({ caption, columns, key, empty, sorted = null }) {
  let order = sorted; // { column, descending }
  let rows = [];
  const headings = columns.map((column, place) => heading(column, () => sort(place)));
  const body = element("tbody");
  const nothing = element("p", { class: "empty", hidden: true }, empty);
  const whole = element("table", { hidden: true },
    element("caption", {}, caption),
    element("thead", {}, element("tr", {}, headings)),
    body);
  const cut = element("p", { class: "empty", hidden: true }, `The first ${ROWS_MAX}; the command line lists all.`);
  const box = element("div", { class: "table" }, whole, nothing, cut);

  function sort(place) {
    order = {
      column: place,
      descending: order?.column === place ? !order.descending : Boolean(columns[place].number),
    };
    paint();
  }

  function paint() {
    headings.forEach((each, place) => {
      if (columns[place].by) each.setAttribute(
        "aria-sort",
        order?.column === place ? (order.descending ? "descending" : "ascending") : "none",
      );
    });
    keep(body, inOrder(rows, columns, order).map((row) => ({
      key: key(row),
      sign: JSON.stringify(row),
      make: () => element("tr", {}, columns.map((column) => cellOf(column, row))),
    })));
    whole.hidden = rows.length === 0;
    nothing.hidden = rows.length > 0;
    cut.hidden = rows.length < ROWS_MAX;
  }

  const show = (now) => {
    rows = now;
    paint();
  };
  return { box, show };
}

function heading(column, sort) {
  const inside = column.by ? element("button", { type: "button", class: "sort", onclick: sort },
    column.title) : column.title;
  return element("th", { scope: "col", class: column.number ? "number" : null }, inside);
}

function cellOf(column, row) {
  const inside = column.cell(row);
  return element("td", { class: column.number ? "number" : null, "data-label": column.title },
    element("div", {}, inside ?? "–"));
}

function inOrder(rows, columns, order) {
  if (!order) return rows;
  const by = columns[order.column].by;
  const sign = order.descending ? -1 : 1;
  return [...rows].sort((one, other) => sign * compared(by(one), by(other)));
}

function compared(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return String(one ?? "").localeCompare(String(other ?? ""), undefined, { numeric: true });
}
