// Every conversation a lane: drawn in time, or as a table.

import { Board } from "../board.js";
import { ORDERS, asked, chosen, ordered, written } from "../choose.js";
import { element } from "../dom.js";
import { STATES, sinceOf, stateOf } from "../fold.js";
import { LanesTable } from "../lanestable.js";
import { board, follow, serverNow } from "../stream.js";
import { duration } from "../time.js";
import { storyOf, why } from "../lanewords.js";

const LOOK_MS = 1000; // rows are chosen and put in order so often
const STILL_MS = 4000; // and not at all for so long after a hand has moved over them
const NAMES_MAX = 200; // channels and agents to choose from

const KEYS = [
  ["↑ ↓ Home End Page", "move from lane to lane"],
  ["Enter", "open the conversation"],
  ["← →", "look back, and come back to now"],
  ["+ −", "closer and wider in time; also Ctrl and the wheel"],
  ["Space", "hold the picture, or let it go on"],
  ["/", "filter by text"],
  ["t", "table or picture"],
  ["?", "this help"],
];

export async function show(root, place) {
  const view = new LanesView(root, asked(place.query ?? new URLSearchParams()));
  return () => view.close();
}

class LanesView {
  constructor(root, wanted) {
    Object.assign(this, { root, wanted, movedAt: 0, seen: -1, told: -1 });
    this.#tools();
    this.#picture();
    this.#words();
    root.append(this.tools, this.legend, this.stage, this.page, element("footer", {}, this.note, this.signs));
    this.board = new Board(this.scroller, {
      now: serverNow,
      onOpen: (lane) => (location.hash = storyOf(lane)),
      onPoint: (lane, x, y, how) => this.#point(lane, x, y, how),
    });
    this.table = new LanesTable(this.page);
    window.turnlane.board = this.board;
    this.ending = new AbortController();
    window.addEventListener("keydown", (event) => this.#key(event), { signal: this.ending.signal });
    this.unfollow = follow((how) => (how.snapshot ? this.look({ anew: true }) : this.board.touch()));
    this.timer = setInterval(() => this.look(), LOOK_MS);
    this.#turn();
    this.look({ anew: true });
  }

  close() {
    clearInterval(this.timer);
    this.ending.abort();
    this.unfollow();
    this.board.close();
  }

  // What there is to press

  #tools() {
    const { wanted } = this;
    const changed = (act) => (event) => {
      act(event.target.value);
      this.#ask();
    };
    this.text = element("input", {
      type: "search", placeholder: "Filter", "aria-label": "Filter by text", value: wanted.text,
      oninput: changed((value) => (wanted.text = value.trim())),
    });
    this.channel = element("select", { "aria-label": "Channel", onchange: changed((value) => (wanted.channel = value)) });
    this.agent = element("select", { "aria-label": "Agent", onchange: changed((value) => (wanted.agent = value)) });
    const orders = Object.entries(ORDERS).map(([name, title]) => element("option", { value: name, selected: name === wanted.order }, title));
    this.order = element("select", { "aria-label": "Order", onchange: changed((value) => (wanted.order = value)) }, orders);
    this.held = element("button", { type: "button", "aria-pressed": "false", onclick: () => this.#hold() }, "Hold");
    this.asTable = element("button", { type: "button", onclick: () => this.#toggle() }, "Table");
    const button = (title, label, act) => element("button", { type: "button", class: "small", "aria-label": label, title: label, onclick: act }, title);
    this.times = element("span", { class: "times" },
      button("−", "Wider in time", () => this.board.zoom(false)), button("+", "Closer in time", () => this.board.zoom(true)), this.held);
    this.tools = element("div", { class: "tools", role: "search" },
      this.text, this.channel, this.agent, this.order, this.times, this.asTable, button("?", "Keys", () => this.#help()));
    this.chips = STATES.map((name, state) => element("button", {
      type: "button", class: "chip", "data-state": name, "aria-pressed": "false", onclick: () => this.#only(state),
    }, element("i"), element("b", {}, "0"), ` ${name}`));
    const marks = [["message", "message"], ["sent", "sent"], ["retried", "tried again"], ["crashed", "worker lost"], ["dead", "given up"]];
    this.signs = element("span", { class: "signs", "aria-hidden": "true" }, marks.map(([kind, title]) => element("span", { "data-mark": kind }, title)));
    this.legend = element("div", { class: "legend", role: "group", "aria-label": "Show only lanes in these states" }, this.chips);
  }

  #picture() {
    const canvas = element("canvas", { "aria-hidden": "true" });
    this.scroller = element("div", {
      class: "scroller", tabindex: "0", role: "group", "aria-describedby": "lanes-note",
      "aria-label": "Lanes drawn in time. Arrows move, Enter opens, t shows a table.",
    }, canvas, element("div", { class: "height" }));
    this.card = element("div", { class: "card", hidden: true });
    this.stage = element("div", { class: "stage" }, this.scroller, this.card);
    this.scroller.addEventListener("blur", () => this.#point(null));
    this.scroller.addEventListener("pointermove", () => (this.movedAt = performance.now()), { passive: true });
  }

  #words() {
    this.page = element("div", { class: "page" });
    this.note = element("p", { class: "note", id: "lanes-note", role: "status" });
  }

  // What is asked for

  #ask() {
    history.replaceState(null, "", written(this.wanted));
    this.#turn();
    this.look({ anew: true });
  }

  #only(state) {
    const { states } = this.wanted;
    if (!states.delete(state)) states.add(state);
    this.#ask();
  }

  #toggle() {
    this.wanted.table = !this.wanted.table;
    this.#ask();
    (this.wanted.table ? this.asTable : this.scroller).focus();
  }

  #turn() {
    const { table, states } = this.wanted;
    this.stage.hidden = this.times.hidden = this.signs.hidden = table;
    this.page.hidden = !table;
    this.asTable.textContent = table ? "Picture" : "Table";
    this.chips.forEach((chip, state) => chip.setAttribute("aria-pressed", String(states.has(state))));
    this.#point(null);
  }

  #hold() {
    if (this.board.isLive) this.board.hold();
    else this.board.go();
    this.#sayHeld();
  }

  #sayHeld() {
    this.held.textContent = this.board.isLive ? "Hold" : "Go live";
    this.held.setAttribute("aria-pressed", String(!this.board.isLive));
  }

  // Rows are put in order about once a second, and not under somebody's hand.

  look({ anew = false } = {}) {
    const now = serverNow();
    const { rows, counts } = chosen(board.lanes.values(), this.wanted, now);
    this.chips.forEach((chip, state) => say(chip.querySelector("b"), String(counts[state])));
    this.#names();
    const sameLanes = this.shown?.length === rows.length;
    if (anew || !this.#isBusy() || !sameLanes) this.#order(rows, now, { anew });
    if (this.wanted.table) this.table.draw(this.shown, now);
    this.#sayHeld();
    this.#sayNote(rows.length);
    if (!this.card.hidden) this.#fillCard(now);
  }

  #order(rows, now, { anew }) {
    const focused = this.board.rows[this.board.focus];
    // Under a hand, what is new comes last, and the others stay where they are.
    this.shown = anew || !this.#isBusy() ? ordered(rows, this.wanted.order, now) : kept(this.shown, rows);
    this.board.show(this.shown);
    this.board.focus = focused === undefined ? -1 : this.shown.indexOf(focused);
  }

  #isBusy() {
    return performance.now() - this.movedAt < STILL_MS || this.page.contains(document.activeElement) || !this.board.isLive;
  }

  #names() {
    if (this.seen === board.lanes.size) return;
    this.seen = board.lanes.size;
    const lanes = [...board.lanes.values()];
    fill(this.channel, "All channels", lanes.map((lane) => lane.channel), this.wanted.channel);
    fill(this.agent, "All agents", lanes.map((lane) => lane.agent), this.wanted.agent);
  }

  #sayNote(shown) {
    const { size } = board.lanes;
    const left = board.total > size ? ` The ${board.total - size} that have rested longest are not shown.` : "";
    say(this.note, board.at === 0 ? "Waiting for the first lanes…" : size === 0 ? "No conversation yet. The first message makes a lane." : `${shown} of ${size} lanes.${left}`);
  }

  // The card beside the row that is looked at

  #point(lane, x = 0, y = 0, { byKey = false } = {}) {
    this.pointed = lane;
    this.card.hidden = lane === null;
    if (lane === null) return;
    if (byKey) this.movedAt = performance.now();
    this.#fillCard(serverNow());
    const { clientWidth: width, clientHeight: height } = this.stage;
    const left = Math.min(x + 18, width - this.card.offsetWidth - 8);
    const top = y + 24 + this.card.offsetHeight > height ? y - this.card.offsetHeight - 10 : y + 24;
    this.card.style.transform = `translate(${Math.max(8, left)}px, ${Math.max(4, top)}px)`;
  }

  #fillCard(now) {
    const lane = this.pointed;
    const state = STATES[stateOf(lane, now)];
    const since = sinceOf(lane, now);
    const lines = [
      ["waiting", lane.pending ? `${lane.pending} ${lane.pending === 1 ? "message" : "messages"}` : null],
      [state === "running" ? "by" : "why", why(lane, now)],
      ["agent", lane.agent],
      ["turn", lane.turn ? `${lane.turn}${lane.attempt > 1 ? `, attempt ${lane.attempt}` : ""}` : null],
    ].filter(([, words]) => words);
    const how = `${state}${state !== "idle" && since !== null ? ` for ${duration(now - since)}` : ""}`;
    this.card.replaceChildren(
      element("b", {}, `${lane.channel} · ${lane.room}`),
      element("p", { "data-state": state }, element("i"), how),
      element("dl", {}, lines.flatMap(([name, words]) => [element("dt", {}, name), element("dd", {}, words)])),
    );
  }

  #help() {
    const dialog = document.getElementById("confirm");
    const rows = KEYS.flatMap(([key, does]) => [element("dt", {}, element("kbd", {}, key)), element("dd", {}, does)]);
    dialog.replaceChildren(element("h2", {}, "Keys"), element("dl", { class: "keys" }, rows),
      element("form", { method: "dialog" }, element("button", { class: "main" }, "Close")));
    dialog.addEventListener("close", () => this.scroller.focus(), { once: true });
    dialog.showModal();
  }

  // Keys

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const typing = event.target.closest?.("input, select, textarea");
    if (typing) {
      if (event.key === "Escape" && event.target === this.text) this.scroller.focus();
      return;
    }
    const act = { ...this.#anywhere(), ...(this.wanted.table ? {} : this.#onRows()) }[event.key];
    const isPressing = [" ", "Enter"].includes(event.key) && event.target.closest?.("button, a");
    if (act === undefined || isPressing) return;
    event.preventDefault();
    act();
  }

  #anywhere() {
    return { "/": () => this.text.focus(), t: () => this.#toggle(), "?": () => this.#help() };
  }

  #onRows() {
    const { board: picture } = this;
    const move = (by) => () => {
      this.scroller.focus();
      picture.moveFocus(picture.focus < 0 ? Math.max(0, by - 1) : picture.focus + by);
    };
    const opens = () => picture.rows[picture.focus] && picture.onOpen(picture.rows[picture.focus]);
    return {
      ArrowDown: move(1), ArrowUp: move(-1), PageDown: move(picture.page), PageUp: move(-picture.page),
      Home: () => picture.moveFocus(0), End: () => picture.moveFocus(picture.rows.length - 1), Enter: opens,
      ArrowLeft: () => picture.pan(-0.2), ArrowRight: () => picture.pan(0.2),
      "+": () => picture.zoom(true), "=": () => picture.zoom(true), "-": () => picture.zoom(false),
      " ": () => this.#hold(), Escape: () => this.#point(null),
    };
  }
}

function kept(shown, rows) {
  const wanted = new Set(rows);
  const stay = shown.filter((lane) => wanted.delete(lane));
  return [...stay, ...wanted];
}

function fill(select, title, names, wanted) {
  const known = [...new Set([...names, wanted])].filter(Boolean).sort().slice(0, NAMES_MAX);
  const options = known.map((name) => element("option", { value: name, selected: name === wanted }, name));
  select.replaceChildren(element("option", { value: "", selected: !wanted }, title), ...options);
}

function say(where, text) {
  if (where.textContent !== text) where.textContent = text;
}
