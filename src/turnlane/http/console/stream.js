// One line to the server for the whole page: it keeps the lanes up to date, also while another section is open.

import { get } from "./api.js";
import { STATES, emptyBoard, fold, marksOf, stateOf } from "./fold.js";

const AGAIN_MS = 1000;
const HIDDEN_MS_MAX = 60_000; // a page that nobody looks at for so long lets go of the line

export const board = emptyBoard();
const listeners = new Set();
let source = null;
let cursor = null;
let offset = 0; // of the server's clock to ours
let hiding = null;
let received = 0;

export const serverNow = () => Date.now() + offset;

// Calls back with every piece that was told, until the returned function is called.
export function follow(listener) {
  listeners.add(listener);
  if (source === null) connect();
  return () => listeners.delete(listener);
}

function connect() {
  say("connecting");
  source = new EventSource(`/api/lanes/stream${cursor === null ? "" : `?after=${cursor}`}`);
  source.addEventListener("snapshot", (event) => take(event, { snapshot: true }));
  source.addEventListener("changes", (event) => take(event));
  source.addEventListener("open", () => say("live"));
  source.addEventListener("error", lost);
}

function take(event, how = {}) {
  const told = JSON.parse(event.data);
  const ahead = told.at - Date.now();
  // What was told took a while to arrive, so the clock is never behind; a new line may be to another machine.
  offset = how.snapshot ? ahead : Math.max(offset - 1, ahead);
  received += event.data.length;
  cursor = event.lastEventId;
  fold(board, told, how);
  for (const listener of listeners) listener(how);
}

// The browser would come back by itself after some failures and not after others; so it is always done here.
function lost() {
  source.close();
  say("gone");
  setTimeout(async () => {
    await get("/api/me").catch(() => null); // leads to the login page if that is what is missing
    if (!document.hidden || hiding !== null) connect();
    else source = null;
  }, AGAIN_MS);
}

function letGo() {
  hiding = null;
  source?.close();
  source = null;
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    hiding ??= setTimeout(letGo, HIDDEN_MS_MAX);
  } else {
    clearTimeout(hiding);
    hiding = null;
    if (source === null && listeners.size > 0) connect();
  }
});

const WORDS = { connecting: "connecting", live: "live", gone: "no connection" };

function say(state) {
  const shown = document.getElementById("connection");
  shown.dataset.state = state;
  shown.textContent = WORDS[state];
}

// For whoever looks from outside: tests and benchmarks.
window.turnlane = {
  lanes: () => Object.fromEntries([...board.lanes.values()].map((lane) => [lane.key, STATES[stateOf(lane, serverNow())]])),
  marks: (key) => marksOf(board.lanes.get(key)),
  received: () => received,
  cursor: () => cursor,
};
