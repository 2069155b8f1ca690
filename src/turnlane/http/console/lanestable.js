// The same lanes as a plain table, a page at a time: for screen readers, for copying, and for whoever prefers words.

import { element } from "./dom.js";
import { STATES, sinceOf, stateOf } from "./fold.js";
import { duration } from "./time.js";
import { storyOf, why } from "./lanewords.js";

export const ROWS_MAX = 100;
const TITLES = ["Conversation", "State", "For", "Waiting", "Agent", "Turn", "Why"];

export class LanesTable {
  constructor(root) {
    this.page = 0;
    this.rows = [];
    this.body = element("tbody");
    this.place = element("span", { role: "status" });
    this.before = element("button", { type: "button", onclick: () => this.turn(-1) }, "Earlier");
    this.after = element("button", { type: "button", onclick: () => this.turn(1) }, "Later");
    const head = element("tr", {}, TITLES.map((title) => element("th", { scope: "col" }, title)));
    const table = element("table", {}, element("caption", {}, "Lanes"), element("thead", {}, head), this.body);
    root.append(table, element("p", { class: "pages" }, this.before, this.place, this.after));
  }

  turn(by) {
    this.page += by;
    this.draw(this.rows, this.now);
  }

  draw(rows, now) {
    Object.assign(this, { rows, now });
    const pages = Math.max(1, Math.ceil(rows.length / ROWS_MAX));
    this.page = Math.max(0, Math.min(this.page, pages - 1));
    const first = this.page * ROWS_MAX;
    const shown = rows.slice(first, first + ROWS_MAX);
    while (this.body.rows.length > shown.length) this.body.lastChild.remove();
    shown.forEach((lane, place) => this.#fill(this.body.rows[place] ?? this.#add(), lane, now));
    this.before.disabled = this.page === 0;
    this.after.disabled = this.page === pages - 1;
    say(this.place, rows.length ? `${first + 1} to ${first + shown.length} of ${rows.length}` : "No lane is like that.");
  }

  #add() {
    const cells = TITLES.map((_, place) => (place === 0 ? element("th", { scope: "row" }, element("a")) : element("td")));
    const row = element("tr", {}, cells);
    this.body.append(row);
    return row;
  }

  // Rows stay and take other words, so that the focus stays too.
  #fill(row, lane, now) {
    const state = STATES[stateOf(lane, now)];
    const since = sinceOf(lane, now);
    const link = row.cells[0].firstChild;
    if (row.dataset.key !== lane.key) {
      row.dataset.key = lane.key;
      link.href = storyOf(lane);
      link.textContent = `${lane.channel} · ${lane.room}`;
    }
    row.dataset.state = state;
    const idle = state === "idle" || since === null;
    const words = [state, idle ? "" : duration(now - since), lane.pending || "", lane.agent, lane.turn || "", why(lane, now)];
    words.forEach((word, place) => say(row.cells[place + 1], String(word)));
  }
}

function say(where, text) {
  if (where.textContent !== text) where.textContent = text;
}
