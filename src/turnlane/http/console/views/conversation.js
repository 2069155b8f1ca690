// One conversation's story: what was said and answered, by whom, when and why, and every button that changes it.

import { action, enable } from "../actions.js";
import { conversationPath, get, post } from "../api.js";
import { composer } from "../composer.js";
import { element } from "../dom.js";
import { PAUSED } from "../fold.js";
import { keepFresh } from "../fresh.js";
import { keep } from "../keep.js";
import { rows } from "../rows.js";
import { steeringOfOutbox, steeringOfTurns } from "../steering.js";
import { laneOf, sensible, standing, timeline } from "../story.js";
import { board, follow } from "../stream.js";
import { moment } from "../time.js";
import { TONES, badge, many, named, said, spent } from "../words.js";

const FIRST_ROWS = 100;
const ROWS_MAX = 1000;
const AT_THE_END_PIXELS = 120;

export async function show(root, place) {
  const key = place.rest.join("/");
  const page = new StoryPage(root, key);
  await page.look().catch(() => null); // it has said so, and looks again
  page.toTheEnd();
  return page.stay();
}

class StoryPage {
  constructor(root, key) {
    this.key = key;
    document.title = `${named(key)} · Turnlane`;
    this.limit = FIRST_ROWS;
    this.seen = "";
    this.story = null;
    this.pauses = [];
    this.then = () => this.fresh?.again();
    this.state = element("span", { class: "state" });
    this.facts = element("dl", { class: "facts" });
    this.standing = element("ul", { class: "standing", "aria-live": "polite" });
    this.trouble = element("p", { class: "trouble", role: "alert" });
    this.older = element("button", { type: "button", class: "older" }, "Show older");
    this.older.addEventListener("click", () => this.showOlder());
    this.list = element("ol", { class: "story", "aria-label": "What happened, oldest first" });
    this.turnButtons = this.buttons("turn");
    this.outButtons = this.buttons("out");
    this.outbox = element("div", { class: "actions", role: "group", "aria-label": "Its outbox", hidden: true },
      element("span", { class: "of" }, "Outbox"), Object.values(this.outButtons));
    const turns = element("div", { class: "actions", role: "group", "aria-label": "Its turns" },
      Object.values(this.turnButtons));
    // On a phone the buttons are one touch away: there the story needs the room.
    const more = element("details", { open: !window.matchMedia("(max-width: 44rem)").matches },
      element("summary", {}, "What it is, and what you can do"), this.facts, turns, this.outbox);
    root.append(
      element("header", { class: "head" },
        element("h2", {}, said(named(key))), this.state, this.standing, this.trouble, more),
      this.older, this.list, composer(key, this.then));
  }

  // Looking

  async look() {
    let story;
    try {
      story = await get(`${conversationPath(this.key)}?limit=${this.limit}`);
      this.trouble.textContent = "";
    } catch (error) {
      this.trouble.textContent = this.story ? `${error.message} What you see is older.` : error.message;
      throw error;
    }
    this.pauses = pausesOf(board.lanes.get(this.key));
    const text = JSON.stringify([story, this.pauses]);
    if (text === this.seen) return false;
    this.seen = text;
    this.story = story;
    this.paint();
    return true;
  }

  // The page's one line to the server tells when something happened here; looking by itself is for what it may miss.
  stay() {
    this.fresh = keepFresh(() => this.look(), { soon: 2000, late: 10000 });
    const leave = follow(() => this.hear());
    return () => {
      leave();
      this.fresh.stop();
    };
  }

  hear() {
    const lane = board.lanes.get(this.key);
    const heard = lane && [lane.activeAt, lane.since, lane.state, lane.pending, lane.epoch, lane.marks.length].join();
    if (heard === this.heard) return;
    this.heard = heard;
    this.then();
  }

  paint() {
    const main = document.getElementById("main");
    const wasAtTheEnd = main.scrollHeight - main.scrollTop - main.clientHeight < AT_THE_END_PIXELS;
    this.paintHead();
    keep(this.list, rows(timeline(this.story, this.pauses), this.key, this.then));
    const sizes = ["messages", "turns", "attempts", "deliveries"].map((name) => this.story[name].length);
    this.older.hidden = Math.max(...sizes) < this.limit;
    this.older.disabled = this.limit >= ROWS_MAX;
    if (this.older.disabled) this.older.textContent = "Older than this: turnlane show";
    if (wasAtTheEnd) this.toTheEnd();
  }

  paintHead() {
    const turns = laneOf(this.story, "turn");
    const out = laneOf(this.story, "out");
    const sessions = Object.keys(this.story.sessions).length;
    this.state.replaceChildren(badge(turns?.state ?? "no turns", TONES[turns?.state]));
    this.facts.replaceChildren(...factsOf(this.story, turns));
    keep(this.standing, standing(this.story, moment).map(([tone, text]) =>
      ({ key: text, sign: tone, make: () => element("li", { "data-tone": tone }, text) })));
    settle(this.turnButtons, sensible(turns, { sessions }));
    this.outbox.hidden = out === null;
    settle(this.outButtons, sensible(out));
  }

  // Moving

  toTheEnd() {
    const main = document.getElementById("main");
    main.scrollTop = main.scrollHeight;
  }

  // What is read stays where it is. A turn of which more is told now is made anew; those behind it are not.
  async showOlder() {
    this.limit = Math.min(ROWS_MAX, this.limit * 3);
    const main = document.getElementById("main");
    const before = [...this.list.children].map((row) => [row, row.getBoundingClientRect().top]);
    await this.then();
    const [row, top] = before.find(([each]) => each.isConnected && each.dataset.row) ?? [];
    if (row) main.scrollTop += row.getBoundingClientRect().top - top;
  }

  // Acting

  buttons(kind) {
    const made = {};
    for (const [name, wanted] of Object.entries(kind === "out" ? steeringOfOutbox(this) : steeringOfTurns(this))) {
      made[name] = action({
        ...wanted,
        name: kind === "out" ? `outbox-${name}` : name,
        ready: false,
        then: this.then,
      });
    }
    return made;
  }

  steer(verb, body = {}) {
    return post(conversationPath(this.key, `/${verb}`), body);
  }
}

function settle(buttons, readiness) {
  for (const [name, button] of Object.entries(buttons)) {
    enable(button, ...(readiness[name] ?? [false, "It has none yet."]));
  }
}

// The store keeps no pauses that are over; those that this page has seen are marked.
function pausesOf(lane) {
  const marks = [];
  const note = (ms, what) => {
    if (ms > 0) marks.push({ kind: "mark", key: `${what} ${ms}`, at: new Date(ms).toISOString(), what });
  };
  for (let place = 0; place < (lane?.past.length ?? 0); place += 3) {
    const [state, from, to] = lane.past.slice(place, place + 3);
    if (state !== PAUSED) continue;
    note(from, "paused");
    note(to, "resumed");
  }
  if (lane?.drawn === PAUSED) note(lane.since, lane.why ?? "paused");
  return marks;
}

// The head

function factsOf(story, lane) {
  const facts = [["agent", lane?.agent], ["messages waiting", lane?.pending || null], ["when busy", lane?.on_busy]];
  for (const [agent, session] of Object.entries(story.sessions)) {
    const told = [session.handle, many(session.turns, "turn"), spent(session.usage), session.machine];
    facts.push([`session of ${agent}`, told.filter(Boolean).join(" · ")]);
  }
  return facts.filter(([, text]) => text !== null && text !== undefined && text !== "")
    .map(([name, text]) => element("div", {}, element("dt", {}, said(name)), element("dd", {}, said(text))));
}
