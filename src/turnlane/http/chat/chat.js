// The chat page. A line is kept here until the server has stored it, and sent under the same id until then, so that a
// lost connection neither loses nor doubles it. Replies come as a stream that goes on from the last one seen.

const channel = document.body.dataset.channel;
const base = `/channels/${encodeURIComponent(channel)}`;
const lines = document.getElementById("lines");
const empty = document.getElementById("empty");
const connection = document.getElementById("connection");
const composer = document.getElementById("composer");
const text = document.getElementById("text");
const send = composer.querySelector("button");

const retryFirstMs = 500;
const retryMostMs = 10_000;
const requestMostMs = 20_000;
const waitMs = (failures) => Math.min(retryMostMs, retryFirstMs * 2 ** Math.min(failures, 10));

// What outlives a reload. Where the browser keeps nothing, it lives as long as the page.

const kept = {
  memory: new Map(),
  get(name) {
    if (this.memory.has(name)) return this.memory.get(name);
    try {
      return localStorage.getItem(`turnlane.${channel}.${name}`);
    } catch {
      return null;
    }
  },
  set(name, value) {
    try {
      localStorage.setItem(`turnlane.${channel}.${name}`, value);
      this.memory.delete(name);
    } catch {
      this.memory.set(name, value);
    }
  },
};

function randomId(bytes) {
  return Array.from(crypto.getRandomValues(new Uint8Array(bytes)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function beginConversation() {
  const token = randomId(24);
  kept.set("token", token);
  return token;
}

let token = kept.get("token") ?? beginConversation();

// Read anew each time: another tab of the same browser keeps its lines in the same place.
const unsent = {
  all() {
    try {
      return JSON.parse(kept.get("unsent") ?? "[]");
    } catch {
      return [];
    }
  },
  add(line) {
    kept.set("unsent", JSON.stringify([...this.all(), line]));
  },
  remove(id) {
    kept.set("unsent", JSON.stringify(this.all().filter((line) => line.id !== id)));
  },
};

// What is seen. Everything others wrote goes in as text, never as markup.

const shown = new Map();

function show({ from, id, text: words, at = Date.now(), state = "" }) {
  if (shown.has(id)) return;
  const line = document.createElement("li");
  const said = document.createElement("div");
  const about = document.createElement("div");
  const atTheEnd = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 80;
  line.className = `line ${from}`;
  said.className = "words";
  about.className = "about";
  said.textContent = words;
  line.classList.toggle("turned", !lines.lastElementChild?.classList.contains(from));
  line.append(said, about);
  lines.append(line);
  shown.set(id, { line, about, at: new Date(at) });
  mark(id, state);
  empty.hidden = true;
  if (atTheEnd || from === "visitor") lines.scrollTop = lines.scrollHeight;
}

function mark(id, state, detail = "") {
  const { line, about, at } = shown.get(id) ?? {};
  if (!line) return;
  line.dataset.state = state;
  const time = document.createElement("time");
  time.dateTime = at.toISOString();
  time.title = at.toLocaleString();
  time.textContent = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const says = { sending: " · sending…", stored: " · stored", refused: ` · not taken: ${detail}` };
  about.replaceChildren(time, says[state] ?? "");
}

function say(state, words) {
  connection.dataset.state = state;
  connection.textContent = words;
}

// Sending: one line after the other, each until it is stored.

let sending = false;
let wake = () => {};

async function sendUnsent() {
  if (sending) return;
  sending = true;
  let failures = 0;
  for (let line = unsent.all()[0]; line; line = unsent.all()[0]) {
    const { done, detail } = await post(line);
    if (done) {
      unsent.remove(line.id);
      mark(line.id, detail ? "refused" : "stored", detail);
      failures = 0;
    } else {
      await pause(waitMs(failures++));
    }
  }
  sending = false;
}

function pause(milliseconds) {
  return new Promise((resolve) => {
    wake = resolve;
    setTimeout(resolve, milliseconds);
  });
}

async function post({ id, conversation, text }) {
  try {
    const answer = await fetch(base, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ id, conversation, text }),
      signal: AbortSignal.timeout(requestMostMs),
    });
    if (answer.status === 202) return { done: true };
    if (answer.status >= 500 || answer.status === 408 || answer.status === 429) return { done: false };
    const problem = await answer.json();
    return { done: true, detail: problem.detail || problem.title || `status ${answer.status}` };
  } catch {
    // No answer, or half of one: the server may have the line or not, and the same id makes asking again safe.
    return { done: false };
  }
}

// Receiving: what was said before, then what is said from now on.

let stream = null;
let after = 0;

async function open() {
  const mine = token;
  for (let failures = 0; ; failures++) {
    try {
      const answer = await fetch(`${base}/${mine}/history`, { signal: AbortSignal.timeout(requestMostMs) });
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const history = await answer.json();
      if (mine !== token) return;
      for (const line of history.lines) show({ ...line, state: line.from === "visitor" ? "stored" : "" });
      after = history.after;
      break;
    } catch {
      if (mine !== token) return;
      say("lost", "reconnecting");
      await new Promise((resolve) => setTimeout(resolve, waitMs(failures)));
    }
  }
  for (const line of unsent.all()) {
    if (line.conversation === mine) show({ from: "visitor", ...line, state: "sending" });
  }
  sendUnsent();
  follow(0);
}

function follow(failures) {
  stream?.close();
  const mine = (stream = new EventSource(`${base}/${token}/stream?after=${after}`));
  mine.onopen = () => {
    failures = 0;
    say("connected", "connected");
    wake();
  };
  mine.addEventListener("reply", (event) => {
    after = Number(event.lastEventId);
    show(JSON.parse(event.data));
  });
  mine.onerror = () => {
    say("lost", "reconnecting");
    // The browser reconnects after a cut by itself, and gives up after any other answer than a stream.
    if (mine.readyState === EventSource.CLOSED) {
      setTimeout(() => mine === stream && follow(failures + 1), waitMs(failures));
    }
  };
}

// What the person does.

composer.addEventListener("submit", (event) => {
  event.preventDefault();
  const words = text.value.trim();
  if (!words) return;
  const line = { id: randomId(16), conversation: token, text: words, at: Date.now() };
  unsent.add(line);
  show({ from: "visitor", ...line, state: "sending" });
  text.value = "";
  send.disabled = true;
  text.focus();
  sendUnsent();
});

text.addEventListener("input", () => {
  send.disabled = !text.value.trim();
});

text.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  composer.requestSubmit();
});

document.getElementById("begin").addEventListener("click", () => {
  stream?.close();
  token = beginConversation();
  shown.clear();
  lines.replaceChildren();
  empty.hidden = false;
  text.focus();
  open();
});

window.addEventListener("online", () => wake());

open();
