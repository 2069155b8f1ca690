// What happened in one conversation, put into the order of time and grouped by turns. Nothing here touches the page.

// A pause cannot be seen while a turn still runs, so that one may be resumed, too.
const RESUMABLE = ["paused", "parked", "running"];

export const laneOf = (story, kind) => story.lanes.find((lane) => lane.kind === kind) ?? null;

// { kind: "turn" | "message" | "delivery" | "mark", key, at, … }, oldest first.
export function timeline(story, marks = []) {
  const lane = laneOf(story, "turn");
  const groups = groupsOf(story, lane);
  const loose = [...marks];
  const byHand = handWritten(story);
  for (const message of story.messages) {
    if (byHand.messages.has(message.seq)) continue; // its delivery says it
    const group = groupOfMessage(message, story, groups, lane);
    if (group) group.messages.push(message);
    else loose.push({
      kind: "message",
      key: `m${message.seq}`,
      at: message.accepted_at,
      message,
      outcome: story.outcomes[message.seq] ?? null,
    });
  }
  for (const delivery of story.deliveries) {
    const attempts = story.attempts.filter((each) => each.kind === "out" && each.number === delivery.seq);
    const told = {
      ...delivery,
      attempts,
      sender: byHand.senders.get(delivery.id) ?? null,
      held: isHeld(delivery, story),
    };
    const group = delivery.turn === null ? null : groups.get(delivery.turn);
    if (group && delivery.kind === "question" && ask(group, told)) continue;
    if (group) group.deliveries.push(told);
    else loose.push({ kind: "delivery", key: `d${delivery.seq}`, at: delivery.queued_at, delivery: told });
  }
  const turns = [...groups.values()].filter(isWorthTelling).map((group) => ({ ...group, at: beganAt(group) }));
  return [...turns, ...loose].sort((one, other) => one.at.localeCompare(other.at) || one.key.localeCompare(other.key));
}

function groupsOf(story, lane) {
  const groups = new Map();
  const group = (number, turn, state) => ({
    kind: "turn", key: `t${number}`, number, turn, state,
    messages: [], attempts: [], questions: [], deliveries: [],
  });
  for (const turn of story.turns) groups.set(turn.number, group(turn.number, turn, turn.outcome));
  if (lane && hasOpenBatch(lane)) {
    groups.set(lane.number, { ...group(lane.number, null, lane.state), lane: running(lane) });
  }
  groups.set("next", { ...group("next", null, "waits"), number: null });
  for (const each of story.attempts) if (each.kind === "turn") groups.get(each.number)?.attempts.push(each);
  for (const each of story.questions) groups.get(each.turn)?.questions.push({
    ...each,
    delivery: null,
    open: isOpen(each, groups),
  });
  return groups;
}

export const hasOpenBatch = (lane) => lane.claim_seq > lane.done_seq;

const isOpen = (question, groups) => question.answer === null && groups.get(question.turn)?.turn === null;

// Of the lane only what the open turn shows: the rest changes too often to paint it each time.
function running({ attempt, epoch, owner, claimed_at, retry_at, agent }) {
  return { attempt, epoch, owner, claimed_at, retry_at, agent };
}

const isWorthTelling = (group) => group.turn !== null || group.lane || group.messages.length > 0;

// A message that several turns hold belongs to the last of them; one with an outcome of its own to none.
function groupOfMessage(message, story, groups, lane) {
  if (Object.hasOwn(story.outcomes, message.seq)) return null;
  const turn = story.turns.findLast((each) => each.first <= message.seq && message.seq <= each.last);
  if (turn && turn.outcome !== "superseded") return groups.get(turn.number);
  if (lane && message.seq > lane.done_seq && message.seq <= lane.claim_seq) return groups.get(lane.number);
  if (turn) return groups.get(turn.number);
  return lane && message.seq > lane.claim_seq ? groups.get("next") : null;
}

// An operator's words are stored twice: said to the person, and kept for the agent. They are told once.
function handWritten(story) {
  const messages = new Set();
  const senders = new Map();
  const words = story.messages.filter((each) => each.role === "operator").reverse();
  for (const delivery of story.deliveries.filter((each) => each.kind === "operator").reverse()) {
    const found = words.find((each) => each.text === delivery.text && !messages.has(each.seq));
    if (!found) continue;
    messages.add(found.seq);
    senders.set(delivery.id, found.sender);
  }
  return { messages, senders };
}

function ask(group, delivery) {
  const question = group.questions.find((each) => each.delivery === null && each.question.text === delivery.text);
  if (question) question.delivery = delivery;
  return question !== undefined;
}

// It may have arrived, nobody can tell, and an operator is to decide: what stands first in a parked outbox.
function isHeld(delivery, story) {
  const lane = laneOf(story, "out");
  return delivery.state === "queued" && lane?.state === "parked" && delivery.seq === lane.done_seq + 1;
}

function beganAt(group) {
  const times = [
    group.messages[0]?.accepted_at,
    group.turn?.started_at,
    group.lane?.claimed_at,
    group.attempts[0]?.at,
  ];
  return times.filter(Boolean).sort()[0] ?? "";
}

// Everything of a turn in the order of time.
export function talk(group) {
  return [
    ...group.messages.map((message) => ({ kind: "message", at: message.accepted_at, message })),
    ...group.attempts.map((attempt) => ({ kind: "attempt", at: attempt.at, attempt })),
    ...group.questions.map((question) => ({ kind: "question", at: question.asked_at, question })),
    ...group.deliveries.map((delivery) => ({ kind: "delivery", at: delivery.queued_at, delivery })),
  ].sort((one, other) => one.at.localeCompare(other.at));
}

// What the operator should know before anything else: what goes on, and why nothing does. A list of [tone, sentence].
export function standing(story, moment) {
  const turns = laneOf(story, "turn");
  const out = laneOf(story, "out");
  const gone = turns?.gone ?? out?.gone;
  return [
    turns && standingOfTurns(turns, story, moment),
    out && standingOfOutbox(out, moment),
    turns?.awaits && ["warm", `Left to ${turns.awaits}, which holds its session, until ${moment(turns.awaits_until)}.`],
    gone && ["wrong", `Nothing can be sent here until somebody writes again: ${gone}`],
    story.held_until && ["warm", `Nothing is sent for this account before ${moment(story.held_until)}: ${PATIENCE}`],
  ].filter(Boolean);
}

const PATIENCE = "its rate says so, or its platform asked for patience.";
const HELD = "it may have arrived, and nobody can tell. Look on the platform, then send it again or drop it";

function standingOfTurns(lane, story, moment) {
  const { number, attempt, epoch, owner, state } = lane;
  const waiting = `${lane.pending} ${lane.pending === 1 ? "message" : "messages"}`;
  const run = `attempt ${attempt}, epoch ${epoch}`;
  const next = `the next attempt starts at ${moment(lane.retry_at)}`;
  const question = story.questions.find((each) => each.turn === number && each.answer === null);
  const asks = question && !lane.retry_at && lane.state !== "running";
  const told = {
    running: ["busy", `Turn ${number} runs on ${owner} since ${moment(lane.claimed_at)} (${run}).`],
    gathering: ["busy", `Gathers ${waiting}; the turn starts at ${moment(lane.ready_at)}, or later if more is said.`],
    ready: ["warm", `${waiting} due; no worker has taken the turn yet.`],
    waiting: asks
      ? ["warm", `Turn ${number} waits for the answer to its question: “${question.question.text}”`]
      : ["warm", `Turn ${number} failed ${lane.failures}×; ${next}. Retry starts it now, Skip gives it up.`],
    paused: ["warm", `The agent is silent until ${end(lane, moment)}; ${waiting} waiting.`],
    parked: ["wrong", `Nobody can run turn ${number}; ${waiting} waiting. Mend the cause, then press Resume.`],
  };
  return told[state] ?? ["good", "All that was said has its outcome; nothing waits."];
}

function standingOfOutbox(lane, moment) {
  const { number, pending, state } = lane;
  const waiting = `${pending} ${pending === 1 ? "delivery" : "deliveries"} waiting`;
  const next = `the next attempt starts at ${moment(lane.retry_at)}`;
  const told = {
    running: pending && ["busy", `Delivery ${number} is being sent by ${lane.owner} (attempt ${lane.attempt}).`],
    waiting: ["warm", `Sending delivery ${number} failed ${lane.failures}×; ${next}, ${waiting}.`],
    paused: ["warm", `Sending is paused until ${end(lane, moment)}; ${waiting}.`],
    parked: ["wrong", `Delivery ${number} is held: ${HELD}; ${waiting}.`],
  };
  return told[state] ?? (pending && ["busy", `${waiting} to be sent.`]);
}

const end = (lane, moment) => (lane.paused_until ? moment(lane.paused_until) : "somebody resumes it");

// Which buttons make sense now: { name: [ready, why not] }.
export function sensible(lane, { sessions = 0 } = {}) {
  if (!lane) return {};
  const batch = hasOpenBatch(lane);
  return {
    pause: [lane.state !== "paused", "It is paused already."],
    resume: [RESUMABLE.includes(lane.state), "It is neither paused nor parked."],
    stop: [lane.pending > 0, "Nothing waits to be answered."],
    retry: [lane.state === "waiting" && Boolean(lane.retry_at), "Nothing waits for a next attempt."],
    skip: [batch, "Nothing has begun that could be given up."],
    renew: [sessions > 0 || lane.state === "running", "There is no session yet."],
    policy: [true, ""],
  };
}
