// The way to the server and back. A line is sent under its own id until it is stored, so that a lost connection neither
// loses nor doubles it. Replies come as one stream for all conversations, which goes on from the last one known of each.

import { proof } from "./host.js";
import { channel } from "./store.js";

const base = `/channels/${encodeURIComponent(channel)}`;
const requestMostMs = 20_000;
const silenceMostMs = 40_000; // the server says something every 15 s
const typingEveryMs = 1_000;
const retryFirstMs = 400;
const retryMostMs = 8_000;

function patience() {
  let failures = 0;
  let wake = () => {};
  return {
    reset: () => (failures = 0),
    wake: () => wake(),
    wait: () =>
      new Promise((resolve) => {
        wake = resolve;
        setTimeout(resolve, Math.min(retryMostMs, retryFirstMs * 2 ** Math.min(failures++, 10)));
      }),
  };
}

export async function fetchHistory(token, question = {}) {
  const answer = await fetch(`${base}/${token}/history?${new URLSearchParams(question)}`, {
    headers: proof,
    signal: AbortSignal.timeout(requestMostMs),
  });
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  return answer.json();
}

const postJson = (value, timeout = requestMostMs) =>
  fetch(base, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...proof },
    body: JSON.stringify(value),
    signal: AbortSignal.timeout(timeout),
  });

async function post({ id, conversation, text, answers }, files) {
  const attachments = files.map(({ name, url }) => ({ name, url }));
  try {
    const answer = await postJson({ id, conversation, text, answers, attachments }, requestMostMs * (files.length ? 6 : 1));
    if (answer.status === 202) return { stored: true, isTaken: !(await answer.json()).rejected };
    if (answer.status >= 500 || answer.status === 408 || answer.status === 429) return {};
    const problem = await answer.json();
    return { refused: problem.detail || problem.title || `status ${answer.status}` };
  } catch {
    // No answer, or half of one: the server may have the line or not, and the same id makes asking again safe.
    return {};
  }
}

let reported = -Infinity;

// As long as what was said before gathers, the server waits for who is typing. A hint: if it gets lost, nothing is.
export function reportTyping(conversation) {
  const now = performance.now();
  if (now - reported < typingEveryMs) return;
  reported = now;
  postJson({ conversation, typing: true }).catch(() => {});
}

// One line after the other, so that they are stored in the order in which they were typed.
export class Sender {
  #busy = false;
  #patience = patience();
  isStuck = false; // the server answers, perhaps, and stores nothing

  constructor({ next, filesOf, onStored, onRefused, onStuck }) {
    Object.assign(this, { next, filesOf, onStored, onRefused, onStuck });
  }

  async sendAll() {
    if (this.#busy) return;
    this.#busy = true;
    for (let line = this.next(); line; line = this.next()) {
      const { stored, isTaken, refused } = await post(line, this.filesOf(line));
      if (stored) this.onStored(line, isTaken);
      else if (refused) this.onRefused(line, refused);
      this.#notice(!stored && !refused);
      if (this.isStuck) await this.#patience.wait();
      else this.#patience.reset();
    }
    this.#busy = false;
  }

  retryNow() {
    this.#patience.wake();
    this.sendAll();
  }

  #notice(isStuck) {
    if (isStuck === this.isStuck) return;
    this.isStuck = isStuck;
    this.onStuck();
  }
}

// Read by hand, as an EventSource can prove nothing: it sends no headers of ours.
export class Stream {
  #connection = null;
  #watched = new Set();
  #patience = patience();
  isOpen = false;
  isResting = false;

  constructor({ places, onEvent, onOpen, onLost, onRefused }) {
    Object.assign(this, { places, onEvent, onOpen, onLost, onRefused });
  }

  // Only if somebody is not watched yet: what is under way is not cut for nothing.
  cover() {
    if (this.places().some(([token]) => !this.#watched.has(token))) this.connect();
  }

  // Always anew, from the places that are known now.
  async connect() {
    this.rest();
    this.isResting = false;
    const connection = new AbortController();
    this.#connection = connection;
    const places = this.places();
    this.#watched = new Set(places.map(([token]) => token));
    const isRefused = await this.#follow(places, connection);
    if (connection !== this.#connection) return;
    this.isOpen = false;
    if (isRefused) return this.onRefused();
    this.onLost();
    await this.#patience.wait();
    if (connection === this.#connection) this.connect();
  }

  // Holds no connection until it is to connect again. Nothing is lost: it goes on from the places that are known.
  rest() {
    this.#connection?.abort();
    this.#connection = null;
    this.isOpen = false;
    this.isResting = true;
  }

  retryNow() {
    if (!this.isOpen) this.#patience.wake();
  }

  // Until it ends, however it does. True: the server knows us not, and asking again changes nothing.
  async #follow(places, connection) {
    const watch = places.map(([token, after]) => `${token}:${after}`).join(",");
    let timer = setTimeout(() => connection.abort(), requestMostMs);
    const hears = () => {
      clearTimeout(timer);
      timer = setTimeout(() => connection.abort(), silenceMostMs);
    };
    try {
      const answer = await fetch(`${base}/stream?watch=${watch}`, { headers: proof, signal: connection.signal, cache: "no-store" });
      if (answer.status === 401) return true;
      if (!answer.ok) return false;
      this.#patience.reset();
      this.isOpen = true;
      this.onOpen();
      await readEvents(answer.body, hears, (name, data) => connection === this.#connection && this.onEvent(name, data));
    } catch {
      // Cut, or silent for too long: the places say where to go on.
    } finally {
      clearTimeout(timer);
    }
    return false;
  }
}

async function readEvents(body, hears, notify) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
    hears();
    const events = (text + value).split("\n\n");
    text = events.pop();
    for (const event of events) {
      const { event: name, data } = Object.fromEntries(event.split("\n").map((line) => line.split(/: (.*)/s, 2)));
      try {
        if (data) notify(name, JSON.parse(data));
      } catch (error) {
        reportError(error); // a mistake of ours, and no reason to go on without the rest
      }
    }
  }
}
