// The chat page: who is open, what is known of it, and what happens when something is typed, stored or answered.

import * as store from "./store.js";
import { focusList, onList, showConnection, showLines, showList, titleOf, toTheEnd } from "./view.js";
import { Sender, Stream, fetchHistory, reportTyping } from "./wire.js";

const byId = (id) => document.getElementById(id);
const text = byId("text");
const name = byId("name");

const watchedMost = 20; // as the server allows
const lookAgainMs = 15_000;
const undoMs = 10_000;
const longAwayMs = 30_000;
const lastLookMs = 500;

let open = "";
let connected = false;
const known = new Map(); // lines the server has, by token, as far as they were read here

// What is seen is always drawn from what is known.

function draw() {
  const current = store.conversation(open);
  const asked = linesOf(open).at(-1)?.kind === "question" && !store.unsent(open).length; // then it is the person's turn
  const waits = connected && current?.pending.length > 0 && !asked && !linesOf(open).some((line) => line.partial);
  showList(store.conversations(), { open, connected });
  showLines([...linesOf(open), ...store.unsent(open).map(asLine)], { connected, answering: waits, edit, choose: answer });
  if (document.activeElement !== name) name.value = current?.name ?? "";
  name.placeholder = current ? titleOf(current) : "";
}

const asLine = (line) => ({ ...line, from: "visitor", state: line.refused ? "refused" : "sending" });

function lookedAt() {
  const current = store.conversation(open);
  if (document.hidden || !current || current.seen === current.after) return;
  store.changeConversation(open, (each) => (each.seen = each.after));
}

// Coming in. A line may come again (a reconnect, a history), and a reply may come in pieces before it is whole: the same
// id is always the same line, and the latest text of it counts.

function linesOf(token) {
  if (!known.has(token)) known.set(token, []);
  return known.get(token);
}

function put(token, line) {
  const said = linesOf(token);
  const place = said.findIndex((each) => each.id === line.id);
  if (place < 0) said.push(line);
  else said[place] = { ...line, at: said[place].at };
}

const isKnown = (token, id) => linesOf(token).some((line) => line.id === id);

function receive(reply) {
  const token = reply.conversation;
  put(token, reply);
  settle(token, reply);
  lookedAt();
  draw();
  stream.cover();
}

// What there is of an answer. Once there is no more of it the answer itself is a moment away, and takes its place; if none
// comes, it goes.
function preview(line) {
  const token = line.conversation;
  const before = linesOf(token).find((each) => each.id === line.id);
  if (before && !before.partial) return;
  if (line.text !== null) put(token, line);
  else if (before) {
    before.over = true;
    setTimeout(() => {
      removePreviews(token, (each) => each.over);
      draw();
    }, lastLookMs);
  }
  draw();
}

function removePreviews(token, which = () => true) {
  known.set(token, linesOf(token).filter((line) => !line.partial || !which(line)));
}

function settle(token, reply) {
  // A question answers nothing: what it is about still waits.
  const answered = new Set(reply.kind === "question" ? [] : reply.in_reply_to);
  store.changeConversation(token, (each) => {
    each.after = Math.max(each.after, reply.seq);
    // Once a person answers, nobody sees the agent at work: it is silent for a while.
    each.pending = reply.kind === "operator" ? [] : each.pending.filter((id) => !answered.has(id));
  });
  store.noteLast(token, reply);
  for (const line of linesOf(token)) if (answered.has(line.id)) line.state = "done";
  // Asked in another tab, or answered before the server's word that it is stored came through.
  if (token === open && (reply.kind === "question" || reply.in_reply_to.some((id) => !isKnown(token, id)))) refresh(token);
}

const reading = new Map(); // whether it was asked for again while it was read, by token

async function refresh(token) {
  if (reading.has(token)) return void reading.set(token, true);
  reading.set(token, false);
  try {
    absorb(token, await fetchHistory(token));
  } catch {
    // Read again when the stream is back; until then the page shows what it has, and that it is not connected.
    if (connected) setTimeout(() => token === open && refresh(token), lookAgainMs);
  } finally {
    const again = reading.get(token);
    reading.delete(token);
    if (again) refresh(token);
  }
}

function absorb(token, { lines, after }) {
  const stored = new Set(lines.map((line) => line.id));
  for (const line of store.unsent(token)) if (stored.has(line.id)) store.removeUnsent(line.id);
  // A store that was emptied counts from the beginning again. If it was not, what is left out here comes once more.
  const isBehind = after < store.conversation(token)?.after;
  // What came while this was read stays behind it; what is older than its first line has been read before.
  const since = new Date(lines[0]?.at ?? 0);
  const isNewer = (line) => !isBehind && !stored.has(line.id) && new Date(line.at) >= since;
  known.set(token, [...lines, ...linesOf(token).filter(isNewer)]);
  store.changeConversation(token, (each) => {
    each.seen = Math.min(each.seen, after);
    each.after = after;
    each.pending = linesOf(token).filter((line) => line.state === "waiting").map((line) => line.id);
    each.first ||= lines.find((line) => line.from === "visitor")?.text.slice(0, 140) ?? "";
  });
  const last = linesOf(token).filter((line) => !line.partial).at(-1);
  if (last && !store.unsent(token).length) store.noteLast(token, last);
  if (token === open) lookedAt();
  if (isBehind) stream.connect();
  draw();
}

const stream = new Stream({
  places() {
    const urgency = (each) => (each.token === open ? 2 : each.pending.length ? 1 : 0);
    const most = store.conversations().sort((one, other) => urgency(other) - urgency(one));
    return most.slice(0, watchedMost).map(({ token, after }) => [token, after]);
  },
  onReply: receive,
  onPreview: preview,
  onOpen() {
    connected = true;
    for (const token of known.keys()) removePreviews(token); // what there is now is told anew
    showConnection("connected", "connected");
    draw();
    refresh(open);
    sender.retryNow();
  },
  onLost() {
    connected = false;
    showConnection("lost", "reconnecting");
    draw();
  },
});

// Nothing tells the page of a turn that ends without a reply, so it looks.
setInterval(() => {
  if (!connected) return;
  for (const each of store.conversations()) if (each.pending.length) refresh(each.token);
}, lookAgainMs);

// Going out

const sender = new Sender({
  next: () => store.unsent().find((line) => !line.refused),
  onStored(line) {
    store.removeUnsent(line.id);
    if (!isKnown(line.conversation, line.id)) {
      put(line.conversation, { ...line, from: "visitor", at: new Date(line.at).toISOString(), state: "waiting" });
      store.changeConversation(line.conversation, (each) => each.pending.push(line.id));
    }
    stream.retryNow();
    draw();
  },
  onRefused(line, why) {
    store.refuseUnsent(line.id, why);
    draw();
  },
});

// The button of a question answers that question and no other, however late or often it is pressed.
const answer = (question, option) => say(option, { answers: question.id });

function say(words, more = {}) {
  const line = { id: store.randomId(16), conversation: open, text: words, at: Date.now(), ...more };
  store.addUnsent(line);
  store.noteLast(open, { ...line, from: "visitor" });
  draw();
  toTheEnd();
  stream.cover();
  stream.retryNow();
  sender.retryNow();
}

function edit(line) {
  store.removeUnsent(line.id);
  write([line.text, text.value].filter(Boolean).join("\n"));
  draw();
}

function write(words) {
  text.value = words;
  noteDraft();
  text.focus();
}

function noteDraft() {
  store.saveDraft(open, text.value);
  fitComposer();
}

function fitComposer() {
  byId("send").disabled = !text.value.trim();
  // For browsers that cannot fit a field to its content by themselves.
  text.rows = Math.min(8, text.value.split("\n").length);
}

// Conversations

function choose(token) {
  open = token;
  store.saveOpenToken(token);
  text.value = store.draft(token);
  fitComposer();
  lookedAt();
  draw();
  toTheEnd();
  stream.cover();
  if (connected) refresh(token);
  closeDrawer();
  if (matchMedia("(pointer: fine)").matches) text.focus();
}

const someToken = () => store.conversations()[0]?.token ?? store.addConversation();

function begin() {
  const unused = store.conversations().find((each) => !each.last && !store.draft(each.token));
  choose(unused?.token ?? store.addConversation());
  text.focus();
}

let undo = null;

function remove(token) {
  const title = titleOf(store.conversation(token));
  const putBack = store.removeConversation(token);
  undo?.forget();
  byId("removed").firstElementChild.textContent = `Deleted “${title.length > 24 ? `${title.slice(0, 24)}…` : title}”`;
  byId("removed").hidden = false;
  const forget = () => {
    byId("removed").hidden = true;
    clearTimeout(timer);
    undo = null;
  };
  const timer = setTimeout(forget, undoMs);
  undo = {
    forget,
    do() {
      putBack();
      forget();
      choose(token);
    },
  };
  if (token === open) choose(someToken());
  else draw();
}

function rename() {
  const chosen = name.value.trim();
  store.changeConversation(open, (each) => {
    if (chosen !== titleOf(each)) each.name = chosen;
  });
  draw();
}

function step(by) {
  const all = store.conversations();
  const place = all.findIndex((each) => each.token === open) + by;
  if (all[place]) choose(all[place].token);
}

// What the person does

byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const words = text.value.trim();
  if (!words) return;
  write("");
  say(words);
});

text.addEventListener("input", () => {
  noteDraft();
  if (text.value.trim() && store.conversation(open)?.pending.length) reportTyping(open);
});
text.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId("composer").requestSubmit();
});

name.addEventListener("focus", () => {
  name.value ||= name.placeholder;
  name.select();
});
name.addEventListener("blur", rename);
name.addEventListener("keydown", (event) => {
  if (event.isComposing) return;
  if (event.key === "Escape") name.value = store.conversation(open)?.name ?? "";
  if (event.key === "Enter" || event.key === "Escape") text.focus();
});

byId("begin").addEventListener("click", begin);
byId("remove").addEventListener("click", () => remove(open));
byId("removed").lastElementChild.addEventListener("click", () => undo?.do());
onList({
  choose,
  remove,
  rename(token) {
    choose(token);
    name.focus();
  },
});

document.addEventListener("keydown", (event) => {
  const command = event.ctrlKey || event.metaKey;
  if (command && !event.shiftKey && !event.altKey && event.key.toLowerCase() === "k") begin();
  else if (event.altKey && event.key === "ArrowDown") step(1);
  else if (event.altKey && event.key === "ArrowUp") step(-1);
  else if (event.key === "F2") name.focus();
  else if (event.key === "Escape") escape();
  else return;
  event.preventDefault();
});

function escape() {
  closeDrawer();
  text.focus();
}

if (navigator.platform.startsWith("Mac")) byId("begin-keys").textContent = "⌘ K";

// The drawer, which is always open where there is room for it.

function closeDrawer() {
  delete document.body.dataset.drawer;
  byId("talk").inert = false;
  byId("drawer").setAttribute("aria-expanded", "false");
}

byId("drawer").addEventListener("click", () => {
  document.body.dataset.drawer = "open";
  byId("talk").inert = true;
  byId("drawer").setAttribute("aria-expanded", "true");
  focusList();
});
byId("veil").addEventListener("click", closeDrawer);
matchMedia("(max-width: 48rem)").addEventListener("change", closeDrawer);

// Light and dark

const themes = ["system", "light", "dark"];

function showTheme(theme) {
  byId("theme").dataset.theme = theme;
  byId("theme").title = byId("theme").ariaLabel = `Colours: ${theme === "system" ? "as the system" : theme}`;
}

byId("theme").addEventListener("click", () => {
  const theme = themes[(themes.indexOf(byId("theme").dataset.theme) + 1) % themes.length];
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("turnlane.theme", theme);
  } catch {
    // Then it lasts as long as the page.
  }
  showTheme(theme);
});

// Coming back: to the network, to the tab, from another tab.

let hiddenSince = null;

window.addEventListener("online", () => stream.connect());
window.addEventListener("pageshow", (event) => event.persisted && stream.connect());
document.addEventListener("visibilitychange", () => {
  // A machine that slept has a dead connection that looks alive.
  if (!document.hidden && hiddenSince && Date.now() - hiddenSince > longAwayMs) stream.connect();
  hiddenSince = document.hidden ? Date.now() : null;
  lookedAt();
  draw();
});
store.onChangeElsewhere((tokensGone) => {
  if (!store.conversation(open)) return choose(someToken());
  if (tokensGone.has(open)) refresh(open);
  lookedAt();
  draw();
  stream.cover();
  sender.sendAll();
});

showTheme(document.documentElement.dataset.theme ?? "system");
const last = store.openToken();
choose(store.conversation(last) ? last : someToken());
sender.sendAll();
