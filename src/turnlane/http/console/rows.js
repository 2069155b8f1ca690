// The rows of a story, along the axis of time.

import { action } from "./actions.js";
import { conversationPath, post } from "./api.js";
import { decisionsOn } from "./decisions.js";
import { element } from "./dom.js";
import { talk } from "./story.js";
import { duration, moment } from "./time.js";
import { TONES, badge, count, said, since, spent, time, words } from "./words.js";

const GAP_MS = 10 * 60 * 1000;
const NOTHING = "Nothing is kept of this conversation: it was said too long ago, or has not begun.";
const SUPERSEDED = "ended for what was said meanwhile, which a later turn answers";
const CALLED = { dead_letter: "dead letter" };
const HAPPENED = {
  retried: "failed, to be tried again",
  released: "given back",
  lost: "lost with its worker",
  parked: "parked",
  asked: "asked, and is to go on with the answer",
};

export function rows(items, key, then) {
  const made = [];
  let last = null;
  for (const item of items) {
    const gap = gapBetween(last, item.at);
    if (gap) made.push({ key: `gap ${item.key}`, sign: gap, make: () => element("li", { class: "gap" }, gap) });
    made.push({ key: item.key, sign: JSON.stringify(item), make: () => rowOf(item, key, then) });
    last = item.at;
  }
  return made.length ? made : [{ key: "empty", sign: "", make: () => element("li", { class: "empty" }, NOTHING) }];
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
  if (item.kind === "mark") return element("li", { class: "alone" }, mark(item.at, "warm", item.what));
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
  const first = group.messages[0];
  const facts = [
    attempts > 1 ? `attempt ${attempts}` : null,
    (turn ?? lane)?.epoch ? `epoch ${(turn ?? lane).epoch}` : null,
    turn?.worker ?? lane?.owner ? `on ${turn?.worker ?? lane.owner}` : null,
    turn ?? lane ? `agent ${(turn ?? lane).agent}` : null,
    turn && first ? `waited ${duration(between(first.accepted_at, turn.started_at))}` : null,
    turn ? `ran ${duration(between(turn.started_at, turn.ended_at))}` : null,
    turn ? spent(turn.usage) : null,
  ].filter(Boolean);
  return element("header", {},
    element("h3", {}, title), badge(CALLED[group.state] ?? group.state, TONES[group.state]),
    element("span", { class: "facts" }, facts.map((fact) => element("span", {}, said(fact)))),
    lane?.owner ? element("span", { class: "facts" }, element("span", {}, "runs for ", since(lane.claimed_at))) : null);
}

const between = (one, other) => Math.max(0, new Date(other) - new Date(one));

// How it ended, if that is not plain from the answer; and where its messages went.
function endRow({ turn, messages, lane, state }) {
  if (lane?.retry_at) return mark(null, "warm", `the next attempt starts at ${moment(lane.retry_at)}`);
  if (!turn) return state === "waits" ? mark(null, "quiet", "waits for its turn") : null;
  const { outcome, ended_at: at, cause } = turn;
  const decide = () => element("a", { href: "#/deadletters" }, "decide about it");
  if (outcome === "dead_letter") return mark(at, "wrong", "given up on", cause, decide());
  if (outcome === "superseded" && !messages.length) return mark(at, "quiet", SUPERSEDED, cause);
  if (outcome === "retried") return mark(at, "quiet", "was a dead letter; its messages wait again", cause);
  if (outcome === "dropped") return mark(at, "quiet", "was a dead letter; an operator dropped it", cause);
  return cause ? mark(at, "quiet", outcome, cause) : null;
}

function mark(at, tone, what, cause = null, more = null) {
  return element("div", { class: "line" },
    element("div", { class: "at" }, at ? time(at) : null),
    element("p", { class: "event", "data-tone": tone },
      what,
      cause ? [": ", said(cause)] : null,
      more ? [" · ", more] : null));
}

function attemptRow(attempt) {
  const tone = { lost: "wrong", parked: "wrong", asked: "quiet", released: "quiet" }[attempt.result] ?? "warm";
  return mark(attempt.at, tone, happened(attempt), attempt.cause);
}

const happened = ({ attempt, epoch, worker, result }) =>
  `attempt ${attempt}, epoch ${epoch}${worker ? `, on ${worker}` : ""}: ${HAPPENED[result] ?? result}`;

const WHO = { business: "business", operator: "operator", schedule: "the clock" };
const OUTCOMES = {
  superseded: "set aside",
  refused: "refused",
  dropped: "dropped for a newer one",
  answer: "the answer to a question",
  command: "a command",
  heard: "kept for the agent",
};

const fateTone = (outcome) => (outcome === "refused" || outcome === "dropped" ? "warm" : "quiet");

function messageRow(message, outcome = null) {
  const isOurs = message.role === "operator" || message.role === "business";
  return element("div", { class: isOurs ? "line ours" : "line theirs" },
    element("div", { class: "at" }, time(message.accepted_at)),
    element("article", { class: `bubble ${message.role}` },
      element("p", { class: "who" }, said(message.sender), WHO[message.role] ? ` · ${WHO[message.role]}` : null),
      words(message.text),
      message.attachments.map((each) => element("p", { class: "file" },
        "file: ",
        said(each.name ?? each.url),
        each.media_type ? [" · ", said(each.media_type)] : null,
        each.size ? ` · ${count(each.size)} bytes` : null)),
      outcome ? element("p", { class: "fate" }, badge(OUTCOMES[outcome] ?? outcome, fateTone(outcome))) : null));
}

const KINDS = {
  notice: "notice",
  question: "question",
  operator: "by hand",
  reaction: "reaction",
  media: "file",
  typing: "typing",
};

function deliveryRow(delivery, then) {
  return element("div", { class: "line ours" },
    element("div", { class: "at" }, time(delivery.queued_at)),
    element("article", { class: `bubble out ${delivery.kind}` },
      element("p", { class: "who" },
        delivery.sender ? [said(delivery.sender), " · "] : null,
        KINDS[delivery.kind] ?? "answer",
        delivery.parts > 1 ? ` · part ${delivery.part} of ${delivery.parts}` : null),
      words(delivery.text),
      fateOf(delivery, then)));
}

function fateOf(delivery, then) {
  const state = delivery.held ? "held" : delivery.state;
  const facts = [
    delivery.settled_at ? moment(delivery.settled_at) : null,
    delivery.attempt > 1 ? `attempt ${delivery.attempt}` : null,
    delivery.receipt ? `receipt ${delivery.receipt}` : null,
  ].filter(Boolean);
  return element("div", { class: "fate" },
    badge(state, TONES[state]), facts.map((fact) => element("span", { class: "fact" }, said(fact))),
    delivery.cause ? element("p", { class: "cause" }, said(delivery.cause)) : null,
    (delivery.attempts ?? []).map((each) => element("p", { class: "cause" },
      `${moment(each.at)} ${happened(each)}`,
      each.cause ? [": ", said(each.cause)] : null)),
    decisionsOn(delivery, then));
}

function questionRow(asked, key, then) {
  const { question } = asked;
  return element("div", { class: "line ours" },
    element("div", { class: "at" }, time(asked.asked_at)),
    element("article", { class: "bubble out question" },
      element("p", { class: "who" },
        "question",
        question.expires_at && asked.open ? [" · waits until ", time(question.expires_at)] : null),
      words(question.text),
      asked.open ? answers(question, key, then) : element("p", { class: "fate" }, answered(asked)),
      asked.delivery ? fateOf(asked.delivery, then) : null));
}

function answered({ answer, answered_at, question }) {
  const options = question.options.length ? ` (of ${question.options.join(", ")})` : "";
  if (!answer) return element("span", {}, "its turn was over before anybody answered", said(options));
  if (answer.text === null) return element("span", {}, unanswered(answered_at, question), said(options));
  const by = said(answer.by ?? "the person");
  return element("span", {}, "answered ", element("b", {}, said(answer.text)), " by ", by, said(options));
}

function unanswered(at, question) {
  // Known before the time was over: it could not be sent, or was dropped.
  const reachedNobody = !question.expires_at || at < question.expires_at;
  return reachedNobody ? "nobody answered: it reached nobody" : "nobody answered in time";
}

function answers(question, key, then) {
  const give = (text) => post(conversationPath(key, "/answer"), { text });
  const told = "Answered; the turn goes on.";
  return element("p", { class: "actions", role: "group", "aria-label": "Answer for the person" },
    question.options.map((option) => action({
      name: `answer ${option}`,
      label: option,
      title: "Answer the question",
      word: "Answer",
      asks: `“${question.text}” is answered with “${option}” by the operator, and the turn goes on.`,
      does: () => give(option),
      told,
      then,
    })),
    action({
      name: "answer",
      label: question.options.length ? "Something else" : "Answer",
      title: "Answer the question",
      word: "Answer",
      asks: `“${question.text}” is answered by the operator, and the turn goes on.`,
      fields: [{ name: "text", label: "Answer", needed: true }],
      does: ({ text }) => give(text),
      told,
      then,
    }));
}
