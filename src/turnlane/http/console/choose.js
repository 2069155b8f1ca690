// Which lanes are shown, and in which order. What was chosen stands in the address, so that it can be handed on.

import { IDLE, PARKED, PAUSED, REST_MS, RUNNING, STATES, WAITING, sinceOf, stateOf } from "./fold.js";

export const ORDERS = { active: "Active first", waiting: "Longest first", name: "By name" };

// What somebody asked for: #/lanes?q=alice&channel=site&agent=support&state=running,parked&order=name
export function asked(query) {
  const states = (query.get("state") ?? "").split(",").map((word) => STATES.indexOf(word));
  return {
    text: query.get("q") ?? "",
    channel: query.get("channel") ?? "",
    agent: query.get("agent") ?? "",
    states: new Set(states.filter((state) => state >= 0)),
    order: query.get("order") in ORDERS ? query.get("order") : "active",
    table: query.get("view") === "table",
  };
}

export function written(wanted) {
  const query = new URLSearchParams();
  if (wanted.text) query.set("q", wanted.text);
  if (wanted.channel) query.set("channel", wanted.channel);
  if (wanted.agent) query.set("agent", wanted.agent);
  if (wanted.states.size) query.set("state", [...wanted.states].map((state) => STATES[state]).join(","));
  if (wanted.order !== "active") query.set("order", wanted.order);
  if (wanted.table) query.set("view", "table");
  const text = query.toString().replaceAll("%2C", ",");
  return text ? `#/lanes?${text}` : "#/lanes";
}

// Of all lanes those that were asked for; and of all, how many there are in each state.
export function chosen(lanes, wanted, now) {
  const rows = [];
  const counts = STATES.map(() => 0);
  const text = wanted.text.toLowerCase();
  for (const lane of lanes) {
    const state = stateOf(lane, now);
    if (!matches(lane, wanted, text)) continue;
    counts[state] += 1;
    if (wanted.states.size === 0 || wanted.states.has(state)) rows.push(lane);
  }
  return { rows, counts };
}

function matches(lane, wanted, text) {
  if (wanted.channel && lane.channel !== wanted.channel) return false;
  if (wanted.agent && lane.agent !== wanted.agent) return false;
  return !text || lane.key.toLowerCase().includes(text) || lane.room.toLowerCase().includes(text);
}

const byName = (one, other) => (one.key < other.key ? -1 : 1);

const SORTS = {
  name: () => byName,
  waiting: (now) => {
    const since = new Map();
    const start = (lane) => {
      if (!since.has(lane)) since.set(lane, waitsSince(lane, now));
      return since.get(lane);
    };
    return (one, other) => start(one) - start(other) || byName(one, other);
  },
  active: () => (one, other) => one.rank - other.rank || one.livelySince - other.livelySince || byName(one, other),
};

function waitsSince(lane, now) {
  const state = stateOf(lane, now);
  if (state === IDLE) return Infinity;
  const since = state === RUNNING ? lane.claimedAt : (lane.firstAt ?? sinceOf(lane, now));
  return since ?? now;
}

export function ordered(rows, order, now) {
  if (order === "active") for (const lane of rows) rank(lane, now);
  return rows.sort(SORTS[order](now));
}

// What needs somebody, then what is going on, then what is paused, then what rests. A lane that is going on keeps its
// place among the others from turn to turn, also if one run of it failed: rows that hop are not read.
function rank(lane, now) {
  const state = stateOf(lane, now);
  const lively = state !== IDLE || now - lane.activeAt < REST_MS;
  lane.rank = state === PARKED || (state === WAITING && lane.attempt > 1) ? 0 : state === PAUSED ? 2 : lively ? 1 : 3;
}
