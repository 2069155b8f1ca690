// The way to the server and back. A line is sent under its own id until it is stored, so that a lost connection neither
// loses nor doubles it. Replies come as one stream for all conversations, which goes on from the last one known of each.

import { channel } from "./store.js";

const base = `/channels/${encodeURIComponent(channel)}`;
const requestMostMs = 20_000;
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

export async function fetchHistory(token) {
  const answer = await fetch(`${base}/${token}/history`, { signal: AbortSignal.timeout(requestMostMs) });
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  return answer.json();
}

async function post({ id, conversation, text, answers }) {
  try {
    const answer = await fetch(base, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ id, conversation, text, answers }),
      signal: AbortSignal.timeout(requestMostMs),
    });
    if (answer.status === 202) return { stored: true };
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
  fetch(base, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ conversation, typing: true }),
    signal: AbortSignal.timeout(requestMostMs),
  }).catch(() => {});
}

// One line after the other, so that they are stored in the order in which they were typed.
export class Sender {
  #busy = false;
  #patience = patience();

  constructor({ next, onStored, onRefused }) {
    Object.assign(this, { next, onStored, onRefused });
  }

  async sendAll() {
    if (this.#busy) return;
    this.#busy = true;
    for (let line = this.next(); line; line = this.next()) {
      const { stored, refused } = await post(line);
      if (stored) this.onStored(line);
      else if (refused) this.onRefused(line, refused);
      else await this.#patience.wait();
      if (stored || refused) this.#patience.reset();
    }
    this.#busy = false;
  }

  retryNow() {
    this.#patience.wake();
    this.sendAll();
  }
}

export class Stream {
  #source = null;
  #watched = new Set();
  #patience = patience();

  constructor({ places, onReply, onPreview, onOpen, onLost }) {
    Object.assign(this, { places, onReply, onPreview, onOpen, onLost });
  }

  get isOpen() {
    return this.#source?.readyState === EventSource.OPEN;
  }

  // Only if somebody is not watched yet: what is under way is not cut for nothing.
  cover() {
    if (this.places().some(([token]) => !this.#watched.has(token))) this.connect();
  }

  // Always a new source, never the browser's own retry: it would name the places of long ago.
  connect() {
    this.#source?.close();
    const places = this.places();
    const watch = places.map(([token, after]) => `${token}:${after}`).join(",");
    const source = new EventSource(`${base}/stream?watch=${watch}`);
    this.#source = source;
    this.#watched = new Set(places.map(([token]) => token));
    source.onopen = () => {
      this.#patience.reset();
      this.onOpen();
    };
    source.addEventListener("reply", (event) => this.onReply(JSON.parse(event.data)));
    source.addEventListener("preview", (event) => this.onPreview(JSON.parse(event.data)));
    source.onerror = async () => {
      source.close();
      this.onLost();
      await this.#patience.wait();
      if (source === this.#source) this.connect();
    };
    // A source that nobody answers waits for ever.
    setTimeout(() => source.readyState === EventSource.CONNECTING && source.onerror(), requestMostMs);
  }

  retryNow() {
    if (!this.isOpen) this.#patience.wake();
  }
}
