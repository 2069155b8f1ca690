// One conversation's story: what was said and answered, by whom, when and why, and every button that changes it.

import { conversationPath, get, post } from "../api.js";
import { action, ask, enable } from "../actions.js";
import { element } from "../dom.js";
import { keepFresh } from "../fresh.js";
import { keep } from "../keep.js";
import { laneOf, sensible, standing, talk, timeline } from "../story.js";
import { duration, moment } from "../time.js";
import { badge, count, many, named, said, since, spent, time, words } from "../words.js";

const FIRST_ROWS = 100;
const ROWS_MAX = 1000;
const GAP_MS = 10 * 60 * 1000;
const AT_THE_END_PIXELS = 120;

const TONES = {
  answered: "good", sent: "good", idle: "good",
  running: "busy", gathering: "busy", ready: "busy", queued: "busy",
  waiting: "warm", paused: "warm", superseded: "quiet", retried: "quiet", dropped: "quiet",
  dead_letter: "wrong", failed: "wrong", parked: "wrong", held: "wrong", lost: "wrong",
};
const CALLED = { dead_letter: "dead letter" };
const HAPPENED = { retried: "failed, to be tried again", released: "given back", lost: "lost with its worker", parked: "parked", asked: "asked, and is to go on with the answer" };
const BUSY = [
  ["", "as its route says"],
  ["collect", "collect: all of them are the next turn"],
  ["queue", "queue: each is a turn of its own"],
  ["interrupt", "interrupt: the run is ended and starts anew with them"],
  ["steer", "steer: the running agent is told"],
  ["rollback", "rollback: the run is ended, its words forgotten"],
  ["reject", "reject: they are refused"],
];

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
    this.limit = FIRST_ROWS;
    this.seen = "";
    this.story = null;
    this.then = () => this.fresh?.again();
    this.state = element("span", { class: "state" });
    this.facts = element("dl", { class: "facts" });
    this.standing = element("ul", { class: "standing", "aria-live": "polite" });
    this.trouble = element("p", { class: "trouble", role: "alert" });
    this.older = element("button", { type: "button", class: "older", "data-act": "older", onclick: () => this.showOlder() }, "Show older");
    this.list = element("ol", { class: "story", "aria-label": "What happened, oldest first" });
    this.turnButtons = this.buttons("turn");
    this.outButtons = this.buttons("out");
    this.outbox = element("div", { class: "actions", role: "group", "aria-label": "Its outbox", hidden: true },
      element("span", { class: "of" }, "Outbox"), Object.values(this.outButtons));
    root.append(
      element("header", { class: "head" },
        element("h2", {}, said(named(key))), this.state, this.facts, this.standing, this.trouble,
        element("div", { class: "actions", role: "group", "aria-label": "Its turns" }, Object.values(this.turnButtons)),
        this.outbox),
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
    const text = JSON.stringify(story);
    if (text === this.seen) return false;
    this.seen = text;
    this.story = story;
    this.paint();
    return true;
  }

  stay() {
    this.fresh = keepFresh(() => this.look(), { soon: 1000, late: 4000 });
    return () => this.fresh.stop();
  }

  paint() {
    const main = document.getElementById("main");
    const wasAtTheEnd = main.scrollHeight - main.scrollTop - main.clientHeight < AT_THE_END_PIXELS;
    this.paintHead();
    keep(this.list, rows(timeline(this.story), this.key, this.then));
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
    this.standing.replaceChildren(...standing(this.story, moment).map(([tone, text]) => element("li", { "data-tone": tone }, text)));
    settle(this.turnButtons, sensible(turns, { sessions }));
    this.outbox.hidden = out === null;
    settle(this.outButtons, sensible(out));
  }

  // Moving

  toTheEnd() {
    const main = document.getElementById("main");
    main.scrollTop = main.scrollHeight;
  }

  // What is read stays where it is.
  async showOlder() {
    this.limit = Math.min(ROWS_MAX, this.limit * 3);
    const main = document.getElementById("main");
    const mark = this.list.querySelector("[data-row]");
    const before = mark?.getBoundingClientRect().top ?? 0;
    await this.then();
    const same = mark?.isConnected ? mark : null;
    if (same) main.scrollTop += same.getBoundingClientRect().top - before;
  }

  // Acting

  buttons(kind) {
    const made = {};
    for (const [name, wanted] of Object.entries(kind === "out" ? steeringOfOutbox(this) : steeringOfTurns(this))) {
      made[name] = action({ ...wanted, name: kind === "out" ? `outbox-${name}` : name, ready: false, then: this.then });
    }
    return made;
  }

  steer(verb, body = {}) {
    return post(conversationPath(this.key, `/${verb}`), body);
  }
}

function settle(buttons, readiness) {
  for (const [name, button] of Object.entries(buttons)) enable(button, ...(readiness[name] ?? [false, "It has none yet."]));
}

// The head

function factsOf(story, lane) {
  const facts = [["agent", lane?.agent], ["messages waiting", lane?.pending || null], ["when busy", lane?.on_busy]];
  for (const [agent, session] of Object.entries(story.sessions)) {
    facts.push([`session of ${agent}`, [session.handle, many(session.turns, "turn"), spent(session.usage), session.machine].filter(Boolean).join(" · ")]);
  }
  return facts.filter(([, text]) => text !== null && text !== undefined && text !== "")
    .map(([name, text]) => element("div", {}, element("dt", {}, said(name)), element("dd", {}, said(text))));
}

// The buttons above the story

const DURATION = { name: "for", label: "For how long", hint: "Like 30m, 2h or 1d. Empty: until somebody resumes it." };
const lasting = (values) => (values.for.trim() ? { for: values.for.trim() } : {});

function steeringOfTurns(page) {
  const name = named(page.key);
  return {
    pause: { label: "Pause", asks: `The agent starts nothing more in ${name}; what runs goes on, and what people write is kept.`, fields: [DURATION], does: (values) => page.steer("pause", lasting(values)), told: "Paused." },
    resume: { label: "Resume", asks: `The agent goes on in ${name}, whether it was paused or parked, with all that waits.`, does: () => page.steer("resume"), told: "It goes on." },
    retry: { label: "Retry now", asks: "The next attempt of the turn that failed starts at once, not when its pause is over.", does: () => page.steer("retry"), told: "The next attempt starts." },
    skip: { label: "Skip", danger: true, asks: "The turn that runs or waits is given up and becomes a dead letter; what is behind it goes on.", does: () => page.steer("skip"), told: "Given up; it is with the dead letters." },
    stop: { label: "Stop", danger: true, asks: `All that was said in ${name} and not answered is set aside, also the turn that runs.`, does: () => page.steer("stop"), told: "Stopped." },
    renew: { label: "New session", asks: "The next turn begins a session of its own; the agent forgets what it remembers of this conversation.", does: () => page.steer("renew"), told: "The next turn begins a new session." },
    policy: { label: "When busy", asks: "What becomes of messages that come while a turn runs, in this conversation alone.", fields: [{ name: "on_busy", label: "They are treated", kind: "select", options: BUSY }], does: (values) => page.steer("policy", { on_busy: values.on_busy || null }), word: "Set", told: "Set, from now on." },
  };
}

function steeringOfOutbox(page) {
  const outbox = { outbox: true };
  return {
    pause: { label: "Pause sending", asks: "Nothing more leaves this conversation; what is answered meanwhile waits in its outbox.", fields: [DURATION], does: (values) => page.steer("pause", { ...outbox, ...lasting(values) }), told: "Sending is paused." },
    resume: { label: "Resume sending", asks: "What waits in the outbox is sent, also a reply that is held because it may have arrived.", does: () => page.steer("resume", outbox), told: "Sending goes on." },
    retry: { label: "Send now", asks: "The delivery that failed is sent at once, not when its pause is over.", does: () => page.steer("retry", outbox), told: "The next attempt starts." },
    skip: { label: "Give up sending", danger: true, asks: "The delivery that is being sent or waits is kept as failed; what is behind it goes on.", does: () => page.steer("skip", outbox), told: "Given up; it is kept as failed." },
  };
}

// The rows

function rows(items, key, then) {
  const made = [];
  let last = null;
  for (const item of items) {
    const gap = gapBetween(last, item.at);
    if (gap) made.push({ key: `gap ${item.key}`, sign: gap, make: () => element("li", { class: "gap" }, gap) });
    made.push({ key: item.key, sign: JSON.stringify(item), make: () => rowOf(item, key, then) });
    last = item.at;
  }
  if (made.length === 0) made.push({ key: "empty", sign: "", make: () => element("li", { class: "empty" }, "Nothing is kept of this conversation: it was said too long ago, or has not begun.") });
  return made;
}

function gapBetween(before, after) {
  if (!before) return new Date(after).toLocaleDateString([], { dateStyle: "full" });
  const passed = new Date(after) - new Date(before);
  const isOtherDay = new Date(before).toDateString() !== new Date(after).toDateString();
  if (isOtherDay) return `${new Date(after).toLocaleDateString([], { dateStyle: "full" })}, ${duration(passed)} later`;
  return passed > GAP_MS ? `${duration(passed)} later` : null;
}

function rowOf(item, key, then) {
  if (item.kind === "turn") return turnRow(item, key, then);
  const inside = item.kind === "message" ? messageRow(item.message, item.outcome) : deliveryRow(item.delivery, then);
  return element("li", { class: "alone", "data-row": item.key }, inside);
}

function turnRow(group, key, then) {
  return element("li", { class: "turn", "data-row": group.key, "data-state": group.state },
    element("div", { class: "line" }, element("div", { class: "at" }), turnHead(group)),
    talk(group).map((each) => {
      if (each.kind === "message") return messageRow(each.message);
      if (each.kind === "attempt") return attemptRow(each.attempt);
      if (each.kind === "question") return questionRow(each.question, key, then);
      return deliveryRow(each.delivery, then);
    }),
    endRow(group));
}

function turnHead(group) {
  const { turn, lane } = group;
  const title = group.number === null ? "Next turn" : `Turn ${group.number}`;
  const attempts = turn?.attempt ?? lane?.attempt;
  const facts = [
    attempts > 1 ? `attempt ${attempts}` : null,
    (turn ?? lane)?.epoch ? `epoch ${(turn ?? lane).epoch}` : null,
    turn?.worker ?? lane?.owner ? `on ${turn?.worker ?? lane.owner}` : null,
    turn ?? lane ? `agent ${(turn ?? lane).agent}` : null,
    turn && group.messages.length ? `waited ${duration(Math.max(0, new Date(turn.started_at) - new Date(group.messages[0].accepted_at)))}` : null,
    turn ? `ran ${duration(new Date(turn.ended_at) - new Date(turn.started_at))}` : null,
    turn ? spent(turn.usage) : null,
  ].filter(Boolean);
  return element("header", {},
    element("h3", {}, title), badge(CALLED[group.state] ?? group.state, TONES[group.state]),
    element("span", { class: "facts" }, facts.map((fact) => element("span", {}, said(fact)))),
    lane?.owner ? element("span", { class: "facts" }, element("span", {}, "runs for ", since(lane.claimed_at))) : null);
}

// How it ended, if that is not plain from the answer; and where its messages went.
function endRow({ turn, messages, lane, state }) {
  if (lane?.retry_at) return mark(null, "warm", `the next attempt starts at ${moment(lane.retry_at)}`);
  if (!turn) return state === "waits" ? mark(null, "quiet", "waits for its turn") : null;
  if (turn.outcome === "dead_letter") return mark(turn.ended_at, "wrong", "given up on", turn.cause, element("a", { href: "#/deadletters" }, "decide about it"));
  if (turn.outcome === "superseded" && !messages.length) return mark(turn.ended_at, "quiet", "ended for what was said meanwhile, which a later turn answers", turn.cause);
  if (turn.outcome === "retried") return mark(turn.ended_at, "quiet", "was a dead letter; its messages wait again", turn.cause);
  if (turn.outcome === "dropped") return mark(turn.ended_at, "quiet", "was a dead letter; an operator dropped it", turn.cause);
  return turn.cause ? mark(turn.ended_at, "quiet", turn.outcome, turn.cause) : null;
}

function mark(at, tone, what, cause = null, more = null) {
  return element("div", { class: "line" },
    element("div", { class: "at" }, at ? time(at) : null),
    element("p", { class: "event", "data-tone": tone }, what, cause ? [": ", said(cause)] : null, more ? [" · ", more] : null));
}

function attemptRow({ at, attempt, epoch, worker, result, cause }) {
  const tone = { lost: "wrong", parked: "wrong", asked: "quiet", released: "quiet" }[result] ?? "warm";
  return mark(at, tone, `attempt ${attempt}, epoch ${epoch}${worker ? `, on ${worker}` : ""}: ${HAPPENED[result] ?? result}`, cause);
}

const WHO = { business: "business", operator: "operator", schedule: "the clock" };
const OUTCOMES = { superseded: "set aside", refused: "refused", dropped: "dropped for a newer one", answer: "the answer to a question", command: "a command", heard: "kept for the agent" };

function messageRow(message, outcome = null) {
  const isOurs = message.role === "operator" || message.role === "business";
  return element("div", { class: isOurs ? "line ours" : "line theirs" },
    element("div", { class: "at" }, time(message.accepted_at)),
    element("article", { class: `bubble ${message.role}` },
      element("p", { class: "who" }, said(message.sender), WHO[message.role] ? ` · ${WHO[message.role]}` : null),
      words(message.text),
      message.attachments.map((each) => element("p", { class: "file" }, "file: ", said(each.name ?? each.url), each.media_type ? [" · ", said(each.media_type)] : null, each.size ? ` · ${count(each.size)} bytes` : null)),
      outcome ? element("p", { class: "fate" }, badge(OUTCOMES[outcome] ?? outcome, outcome === "refused" || outcome === "dropped" ? "warm" : "quiet")) : null));
}

const KINDS = { notice: "notice", question: "question", operator: "by hand", reaction: "reaction", media: "file", typing: "typing" };

function deliveryRow(delivery, then) {
  return element("div", { class: "line ours" },
    element("div", { class: "at" }, time(delivery.queued_at)),
    element("article", { class: `bubble out ${delivery.kind}` },
      element("p", { class: "who" }, delivery.sender ? [said(delivery.sender), " · "] : null, KINDS[delivery.kind] ?? "answer", delivery.parts > 1 ? ` · part ${delivery.part} of ${delivery.parts}` : null),
      words(delivery.text),
      fateOf(delivery, then)));
}

export function fateOf(delivery, then) {
  const state = delivery.held ? "held" : delivery.state;
  const facts = [
    delivery.settled_at ? moment(delivery.settled_at) : null,
    delivery.attempt > 1 ? `attempt ${delivery.attempt}` : null,
    delivery.receipt ? `receipt ${delivery.receipt}` : null,
  ].filter(Boolean);
  return element("div", { class: "fate" },
    badge(state, TONES[state]), facts.map((fact) => element("span", { class: "fact" }, said(fact))),
    delivery.cause ? element("p", { class: "cause" }, said(delivery.cause)) : null,
    (delivery.attempts ?? []).map((each) => element("p", { class: "cause" }, `${moment(each.at)} attempt ${each.attempt}${each.worker ? ` on ${each.worker}` : ""}: ${HAPPENED[each.result] ?? each.result}`, each.cause ? [": ", said(each.cause)] : null)),
    decisionsOn(delivery, then));
}

export function decisionsOn(delivery, then) {
  const path = `/api/outbox/${encodeURIComponent(delivery.id)}`;
  const canResend = delivery.held || delivery.state === "failed" || delivery.state === "dropped";
  const canDrop = delivery.state === "queued" || delivery.state === "failed";
  if (!canResend && !canDrop) return null;
  return element("span", { class: "actions" },
    canResend ? action({ name: "resend", label: "Send again", asks: delivery.held ? "This reply is sent although it may have arrived; then what waits behind it." : "This reply is sent again under the same key, after what already waits.", does: () => post(`${path}/resend`), told: "It is sent again.", then }) : null,
    canDrop ? action({ name: "drop", label: "Drop", danger: true, asks: "This reply is not sent, and what is behind it goes on.", does: () => post(`${path}/drop`), told: "Dropped.", then }) : null);
}

function questionRow(asked, key, then) {
  const { question, answer } = asked;
  return element("div", { class: "line ours" },
    element("div", { class: "at" }, time(asked.asked_at)),
    element("article", { class: "bubble out question" },
      element("p", { class: "who" }, "question", question.expires_at && asked.open ? [" · waits until ", time(question.expires_at)] : null),
      words(question.text),
      asked.open ? answers(question, key, then) : element("p", { class: "fate" }, element("span", {}, answered(answer, question))),
      asked.delivery ? fateOf(asked.delivery, then) : null));
}

function answered(answer, question) {
  const options = question.options.length ? ` (of ${question.options.join(", ")})` : "";
  if (!answer) return ["its turn was over before anybody answered", said(options)];
  if (answer.text === null) return ["nobody answered in time", said(options)];
  return ["answered ", element("b", {}, said(answer.text)), " by ", said(answer.by ?? "the person"), said(options)];
}

function answers(question, key, then) {
  const give = (text) => post(conversationPath(key, "/answer"), { text });
  const told = "Answered; the turn goes on.";
  return element("p", { class: "actions", role: "group", "aria-label": "Answer for the person" },
    question.options.map((option) => action({ name: `answer ${option}`, label: option, title: "Answer the question", word: "Answer", asks: `“${question.text}” is answered with “${option}” by the operator, and the turn goes on.`, does: () => give(option), told, then })),
    action({ name: "answer", label: question.options.length ? "Something else" : "Answer", title: "Answer the question", word: "Answer", asks: `“${question.text}” is answered by the operator, and the turn goes on.`, fields: [{ name: "text", label: "Answer", needed: true }], does: ({ text }) => give(text), told, then }));
}

// Answering by hand

function composer(key, then) {
  const field = element("textarea", { id: "by-hand", rows: 2, placeholder: "Answer by hand…", "aria-label": "Answer by hand" });
  const silent = element("input", { type: "checkbox", id: "takes-over", checked: true });
  const send = element("button", { type: "submit", class: "main", "data-act": "say" }, "Say it");
  let draft = token(); // said again under the same id, it is said once
  const settled = () => enable(send, field.value.trim() !== "", "Write something first.");
  field.addEventListener("input", settled);
  const form = element("form", { class: "composer", "aria-label": "Answer by hand" }, field,
    element("div", { class: "beside" },
      element("label", { for: "takes-over" }, silent, element("span", {}, "take over: the agent falls silent for a while")), send));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (send.disabled) return;
    const text = field.value;
    ask({
      label: "Say it",
      title: "Answer by hand",
      asks: silent.checked ? "The person gets these words as an answer, and the agent falls silent for a while; Resume ends that." : "The person gets these words as an answer; the agent goes on and is told of them.",
      does: () => post(conversationPath(key, "/say"), { text, id: draft, takeover: silent.checked }),
      told: "Said.",
      then: () => {
        draft = token();
        if (field.value === text) field.value = "";
        settled();
        return then();
      },
    }, field);
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  settled();
  return form;
}

// Not randomUUID: that one is only there where the page came over TLS or loopback.
const token = () => [...crypto.getRandomValues(new Uint8Array(16))].map((each) => each.toString(16).padStart(2, "0")).join("");
