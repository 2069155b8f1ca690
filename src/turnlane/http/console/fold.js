// From what the stream tells to what is drawn: lanes as they stand, and the recent past of each. No clock, no page.

export const STATES = ["idle", "gathering", "ready", "running", "waiting", "paused", "parked"];
export const [IDLE, GATHERING, READY, RUNNING, WAITING, PAUSED, PARKED] = STATES.keys();

// Moments that are drawn as marks.
export const MARKS = ["message", "heard", "refused", "sent", "retried", "crashed", "dead", "undelivered"];
const [MESSAGE, HEARD, REFUSED, SENT, RETRIED, CRASHED, DEAD, UNDELIVERED] = MARKS.keys();

const SPANS_MAX = 80; // of the past, for each lane
const MARKS_MAX = 120;
export const REST_MS = 60_000; // a lane in which nothing happens for so long rests

export const emptyBoard = () => ({ lanes: new Map(), total: 0, at: 0, version: 0 });

// Takes what was told into the board. A snapshot says which lanes there are; what was seen of them before is kept.
export function fold(board, told, { snapshot = false } = {}) {
  const known = board.lanes;
  if (snapshot) board.lanes = new Map();
  const columns = placesOf(told.columns);
  const lanes = told.lanes.map((row) => placed(board, known, row[columns.conversation]));
  // The past first: a row says how the lane stands after all of it.
  // A snapshot tells of the last minute, of which some may have been seen.
  const seen = lanes.map((lane) => (snapshot ? lane.activeAt : 0));
  for (const [place, name, at, detail] of told.events) {
    if (told.at + at > seen[place]) happened(lanes[place], name, told.at + at, detail);
  }
  told.lanes.forEach((row, place) => stands(lanes[place], row, columns, told.at));
  board.total = Math.max(snapshot ? told.total : board.total, board.lanes.size);
  board.at = told.at;
  board.version += 1;
  return board;
}

const placesOf = (columns) => Object.fromEntries(columns.map((name, place) => [name, place]));

function placed(board, known, key) {
  let lane = board.lanes.get(key);
  if (lane === undefined) {
    lane = known.get(key) ?? newLane(key);
    board.lanes.set(key, lane);
  }
  return lane;
}

function newLane(key) {
  const slash = key.indexOf("/");
  return {
    key, channel: key.slice(0, slash), room: readable(key.slice(slash + 1)), state: IDLE, agent: "", pending: 0, turn: 0,
    attempt: 0, epoch: 0, open: 0, owner: null, claimedAt: null, firstAt: null, runsAt: null, pausedUntil: null,
    awaits: null, gone: null, why: null,
    drawn: IDLE, since: 0, // the last span, which has no end yet; when gathering or waiting ends is not told, but known
    past: [], marks: [], // numbers in a row: state, from, to; and kind, at
    activeAt: 0, livelySince: 0, // when something last happened, and since when things have, without a longer rest
    later: 0, halted: false, // messages that came while a turn runs, and whether it is paused once that ends
  };
}

export function readable(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// What a lane is doing at that time. Gathering, waiting and some pauses end without anybody saying so.
export function stateOf(lane, now) {
  if (lane.state === RUNNING || lane.state === PARKED) return lane.state;
  if (lane.state === PAUSED && (lane.pausedUntil === null || lane.pausedUntil > now)) return PAUSED;
  if (lane.pending === 0) return IDLE;
  if (lane.runsAt !== null && lane.runsAt <= now) return READY;
  return lane.open ? WAITING : GATHERING;
}

// Since when it does. Null if that was before anybody looked.
export function sinceOf(lane, now) {
  const state = stateOf(lane, now);
  if (state === READY) return lane.runsAt;
  return lane.since === 0 ? null : lane.since;
}

// How a lane stands

function stands(lane, row, columns, at) {
  const value = (name) => row[columns[name]] ?? null;
  const time = (name) => {
    const given = value(name);
    return given === null ? null : at + given;
  };
  lane.state = STATES.indexOf(value("state"));
  if (lane.state !== RUNNING) lane.halted = lane.state === PAUSED;
  lane.agent = value("agent") ?? "";
  lane.pending = value("pending") ?? 0;
  lane.turn = value("turn") ?? 0;
  lane.attempt = value("attempt") ?? 0;
  lane.epoch = value("epoch") ?? 0;
  lane.open = value("open") ?? 0;
  lane.owner = value("owner");
  lane.claimedAt = time("claimed_at");
  lane.firstAt = time("first_at");
  lane.runsAt = time("runs_at");
  lane.pausedUntil = time("paused_until");
  lane.awaits = value("awaits");
  lane.gone = value("gone");
  agree(lane, at);
}

// What is drawn follows how the lane stands, whatever was or was not told of the way there.
function agree(lane, at) {
  let state = stateOf(lane, at);
  if (state === READY) state = lane.open ? WAITING : GATHERING;
  if (state === lane.drawn) return;
  const began = { [RUNNING]: lane.claimedAt, [GATHERING]: lane.firstAt }[state] ?? at;
  turnTo(lane, state, Math.max(began, lane.since));
  if (state !== IDLE) stirs(lane, began);
}

function stirs(lane, at) {
  if (at - lane.activeAt > REST_MS) lane.livelySince = at;
  lane.activeAt = Math.max(lane.activeAt, at);
}

// What happened

const STEPS = {
  "message.accepted": (lane, at) => {
    mark(lane, MESSAGE, at);
    if (lane.drawn === RUNNING) lane.later += 1;
    if (lane.drawn !== IDLE) return;
    turnTo(lane, GATHERING, at);
    lane.runsAt = null;
  },
  "message.heard": (lane, at) => mark(lane, HEARD, at),
  "message.refused": (lane, at) => mark(lane, REFUSED, at),
  "message.dropped": (lane, at) => mark(lane, REFUSED, at),
  "turn.started": (lane, at) => {
    lane.later = 0;
    turnTo(lane, RUNNING, at);
  },
  "turn.answered": (lane, at) => ends(lane, at, null),
  "turn.superseded": (lane, at) => ends(lane, at, lane.why),
  "turn.retried": (lane, at, why) => {
    mark(lane, RETRIED, at);
    waits(lane, at, null, why);
  },
  "turn.released": (lane, at) => waits(lane, at, at, null),
  "turn.asked": (lane, at) => waits(lane, at, null, "it waits for the person's answer"),
  "turn.lost": (lane, at, worker) => {
    mark(lane, CRASHED, at);
    waits(lane, at, at, `its worker ${worker ?? ""} was lost`);
  },
  "turn.dead_lettered": (lane, at, why) => {
    mark(lane, DEAD, at);
    ends(lane, at, why ?? null);
  },
  "delivery.sent": (lane, at) => mark(lane, SENT, at),
  "delivery.retried": (lane, at) => mark(lane, RETRIED, at),
  "delivery.lost": (lane, at) => mark(lane, CRASHED, at),
  "delivery.failed": (lane, at, why) => {
    mark(lane, UNDELIVERED, at);
    lane.why = why ?? null;
  },
  "lane.paused": (lane, at, by) => {
    lane.halted = true;
    if (lane.drawn === RUNNING || lane.drawn === PARKED) return; // it is both, and that is what it shows
    lane.why = `paused by ${by}`;
    turnTo(lane, PAUSED, at);
  },
  "lane.resumed": (lane, at) => {
    lane.halted = false;
    if (lane.drawn !== PAUSED) return;
    lane.why = null;
    turnTo(lane, IDLE, at);
  },
  "lane.parked": (lane, at, why) => {
    lane.why = why ?? null;
    turnTo(lane, PARKED, at);
  },
  "lane.unparked": (lane, at) => turnTo(lane, IDLE, at),
  "lane.stopped": (lane, at) => {
    if (lane.drawn !== RUNNING) turnTo(lane, IDLE, at);
  },
};

function happened(lane, name, at, detail) {
  stirs(lane, at);
  STEPS[name]?.(lane, at, detail);
}

// What came while the turn ran is next, and has waited long enough as a rule; how the lane stands tells it exactly.
function ends(lane, at, why) {
  lane.why = why;
  turnTo(lane, lane.halted ? PAUSED : lane.later ? GATHERING : IDLE, at);
  lane.runsAt = lane.later ? at : null;
}

function waits(lane, at, until, why) {
  lane.why = why;
  turnTo(lane, WAITING, at);
  lane.runsAt = until;
}

function mark(lane, kind, at) {
  if (lane.marks.length >= 2 * MARKS_MAX) lane.marks.splice(0, MARKS_MAX);
  lane.marks.push(kind, at);
}

// The names of a lane's marks, oldest first.
export const marksOf = (lane) => lane.marks.filter((_, place) => place % 2 === 0).map((kind) => MARKS[kind]);

// The past as it is drawn

function turnTo(lane, state, at) {
  if (state === lane.drawn && state !== IDLE) return;
  if (at < lane.since) at = lane.since;
  for (const [which, from, to] of openSpans(lane, at)) {
    if (lane.past.length >= 3 * SPANS_MAX) lane.past.splice(0, (3 * SPANS_MAX) / 2);
    lane.past.push(which, from, to);
  }
  lane.drawn = state;
  lane.since = at;
}

// What a lane has been doing since its last change, until then: as [state, from, to].
export function openSpans(lane, now) {
  const { drawn, since, runsAt } = lane;
  if (drawn === IDLE || now <= since) return [];
  const ends = drawn === GATHERING || drawn === WAITING ? runsAt : drawn === PAUSED ? lane.pausedUntil : null;
  if (ends === null || ends >= now) return [[drawn, since, now]];
  const after = drawn === PAUSED ? (lane.pending ? READY : IDLE) : READY;
  const spans = ends > since ? [[drawn, since, ends]] : [];
  if (after !== IDLE) spans.push([after, Math.max(ends, since), now]);
  return spans;
}
