// The chat page: who is open, what is known of it, and what happens when something is typed, stored or answered.

import { addFiles, chosenFiles, filesMost, filesOf, hold, lacksBytes, onFiles, putFiles, removeFile, whenReady } from "./files.js";
import { hasPanel, isEmbedded, isShownAtFirst, isSigned, onHost, tellHost } from "./host.js";
import * as store from "./store.js";
import { focusList, isAsked, onList, onTop, showConnection, showLines, showList, showOpenEntry, showTray, showTrouble } from "./view.js";
import { tell, titleOf, toTheEnd } from "./view.js";
import { Sender, Stream, fetchHistory, reportTyping } from "./wire.js";

const byId = (id) => document.getElementById(id);
const text = byId("text");
const name = byId("name");

const watchedMost = 20; // as the server allows
const lookAgainMs = 15_000;
const undoMs = 10_000;
const longAwayMs = 30_000;
const restAfterMs = 10_000;
const glanceMs = 2_000;
const lastLookMs = 500;
const stopAfterMs = 1_000;
const toldAfterMs = 3_000; // the server looks every 2 s

let open = "";
let connected = false;
let isPanelShown = isShownAtFirst;
const known = new Map(); // lines the server has, by token, as far as they were read here
const older = new Map(); // whether it has still older ones, by token
const atWork = new Map(); // whether somebody works on an answer, by token; the store knows, whoever it is

// What is seen is always drawn from what is known.

function draw() {
  const current = store.conversation(open);
  const asked = isAsked(linesOf(open)) && !store.unsent(open).length;
  const isExpected = current?.pending.length > 0 || atWork.get(open);
  const grows = linesOf(open).some((line) => line.partial);
  const waits = connected && isExpected && !asked && !grows;
  showList(store.conversations(), { open, connected, atWork, asked });
  const isSent = connected && !sender.isStuck;
  showLines([...linesOf(open), ...store.unsent(open).map(asLine)], { isSent, answering: waits, edit, sayAgain, choose: answer });
  offerToStop(waits || (connected && grows));
  tellUnread(current && current.after > current.seen ? Math.max(1, current.unread) : 0);
  if (document.activeElement !== name) name.value = current?.name ?? "";
  name.placeholder = current ? titleOf(current) : "";
}

// Pieces come faster than a long answer can be drawn. Only the latest is, and drawing takes a third of the time at most.
let soon = null;
let drawTook = 0;

function drawSoon() {
  soon ??= setTimeout(() => {
    const begun = performance.now();
    soon = null;
    draw();
    drawTook = performance.now() - begun;
  }, 2 * drawTook);
}

// A moment later, lest who taps twice to send something stops what was sent.
const stopWord = document.body.dataset.stop;
const isStop = ({ text: words, state }) => words === stopWord && (!state || state === "waiting");
let stopTimer = null;
let canStop = false;

function offerToStop(isAnswering) {
  const isOffered = Boolean(stopWord) && isAnswering && !store.unsent(open).some(isStop) && !linesOf(open).some(isStop);
  if (isOffered === (stopTimer !== null)) return;
  clearTimeout(stopTimer);
  canStop = false;
  stopTimer = isOffered ? setTimeout(mayStop, stopAfterMs) : null;
  showSendOrStop();
}

function mayStop() {
  canStop = true;
  showSendOrStop();
}

function showSendOrStop() {
  const isEmpty = !text.value.trim() && !chosenFiles().length;
  const hadFocus = document.activeElement === byId("stop");
  byId("send").disabled = isEmpty;
  byId("send").hidden = isEmpty && canStop;
  byId("stop").hidden = !byId("send").hidden;
  if (hadFocus && byId("stop").hidden) text.focus();
}

let unreadTold = 0;

function tellUnread(count) {
  if (count !== unreadTold) tellHost("unread", { count });
  unreadTold = count;
}

function asLine(line) {
  if (lacksBytes(line)) hold({ ...line, attachments: store.unsentFiles(line.id) });
  return { ...line, from: "visitor", state: line.refused ? "refused" : "sending" };
}

function lookedAt() {
  const current = store.conversation(open);
  if (document.hidden || !isPanelShown || !current || current.seen === current.after) return;
  store.changeConversation(open, (each) => {
    each.seen = each.after;
    each.unread = 0;
  });
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
  const listed = store.conversation(token); // not if it was deleted meanwhile; it can be put back
  if (token === open) tell(reply.text);
  else if (listed) tell(`New reply in ${titleOf(listed)}`);
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
  if (line.text !== null) {
    closeQuestions(token);
    put(token, line);
  } else if (before) {
    before.over = true;
    setTimeout(() => {
      removePreviews(token, (each) => each.over);
      draw();
    }, lastLookMs);
  }
  drawSoon();
}

function removePreviews(token, which = () => true) {
  known.set(token, linesOf(token).filter((line) => !line.partial || !which(line)));
}

// Who goes on has its answer, or waits for none any more.
function closeQuestions(token) {
  for (const line of linesOf(token)) if (line.options?.length) line.options = [];
}

function settle(token, reply) {
  // A question answers nothing: what it is about still waits.
  const answered = new Set(reply.kind === "question" ? [] : reply.in_reply_to);
  store.changeConversation(token, (each) => {
    if (reply.seq > each.after) each.unread = (each.unread ?? 0) + 1;
    each.after = Math.max(each.after, reply.seq);
    // Once a person answers, nobody sees the agent at work: it is silent for a while.
    each.pending = reply.kind === "operator" ? [] : each.pending.filter((id) => !answered.has(id));
  });
  // Whether there is more to come is told a moment later.
  if (answered.size && !store.conversation(token)?.pending.length) atWork.set(token, false);
  store.noteLast(token, reply);
  for (const line of linesOf(token)) if (answered.has(line.id)) line.state = "done";
  if (reply.kind === "reply") closeQuestions(token);
  // A notice does not say what it is about: the server knows whether that still waits.
  if (reply.kind === "notice") refresh(token);
  // Asked in another tab, or answered before the server's word that it is stored came through.
  else if (token === open && (reply.kind === "question" || reply.in_reply_to.some((id) => !isKnown(token, id)))) refresh(token);
}

// Somebody began to work on an answer, or there is none to be expected any more.
function expect({ conversation: token, working, last }) {
  atWork.set(token, working);
  // Ended without a reply, perhaps; or said on another device.
  const isUnclear = store.conversation(token)?.pending.length || linesOf(token).some((line) => line.options?.length);
  if (!working ? isUnclear : isSigned && last > (lastRead.get(token) ?? 0)) refresh(token);
  draw();
}

const lastRead = new Map(); // the place of what was said last when the history was read, by token
const reading = new Map(); // whether it was asked for again while it was read, by token

async function refresh(token) {
  if (reading.has(token)) return void reading.set(token, true);
  reading.set(token, false);
  try {
    // Files are large, and what came with a line stays the same: they are asked for where they are not known.
    const isKnownHere = linesOf(token).length > 0;
    let found = await fetchHistory(token, isKnownHere ? { files: "no" } : {});
    if (isKnownHere && found.lines.some(lacksBytes)) found = await fetchHistory(token);
    absorb(token, found);
  } catch {
    // Read again when the stream is back; until then the page shows what it has, and that it is not connected.
    if (connected) setTimeout(() => token === open && refresh(token), lookAgainMs);
  } finally {
    const again = reading.get(token);
    reading.delete(token);
    if (again) refresh(token);
  }
}

function absorb(token, { lines: found, after, more, last: lastSaid }) {
  const lines = found.map(hold);
  lastRead.set(token, lastSaid);
  const stored = new Set(lines.map((line) => line.id));
  for (const line of store.unsent(token)) if (stored.has(line.id)) store.removeUnsent(line.id);
  // A store that was emptied counts from the beginning again. If it was not, what is left out here comes once more.
  const isBehind = after < store.conversation(token)?.after;
  // What came while this was read stays behind it; what is older than its first line stays before it.
  const since = new Date(lines[0]?.at ?? 0);
  const others = linesOf(token).filter((line) => !isBehind && !stored.has(line.id));
  const before = others.filter((line) => new Date(line.at) < since);
  known.set(token, [...before, ...lines, ...others.filter((line) => new Date(line.at) >= since)]);
  if (!before.length) older.set(token, more);
  store.changeConversation(token, (each) => {
    each.seen = Math.min(each.seen, after);
    each.after = after;
    if (each.seen === after) each.unread = 0;
    each.pending = linesOf(token).filter((line) => line.state === "waiting").map((line) => line.id);
    if (!more) each.first ||= lines.find((line) => line.from === "visitor")?.text.slice(0, 140) ?? "";
  });
  const last = linesOf(token).filter((line) => !line.partial).at(-1);
  if (last && !store.unsent(token).length) store.noteLast(token, last);
  if (token === open) lookedAt();
  if (isBehind) stream.connect();
  draw();
}

// Older lines, when somebody scrolls up to where they begin.
let isReadingBack = false;

async function readBack() {
  const token = open;
  const [first] = linesOf(token);
  if (isReadingBack || !older.get(token) || !first) return;
  isReadingBack = true;
  try {
    const { lines, more } = await fetchHistory(token, { before: first.id });
    const present = new Set(linesOf(token).map((line) => line.id));
    known.set(token, [...lines.filter((line) => !present.has(line.id)).map(hold), ...linesOf(token)]);
    older.set(token, more && lines.length > 0);
  } catch {
    // Asked again with the next scroll.
  } finally {
    isReadingBack = false;
  }
  draw();
}

const handlers = { reply: receive, preview, working: expect };

const stream = new Stream({
  places() {
    const urgency = (each) => (each.token === open ? 2 : each.pending.length ? 1 : 0);
    const most = store.conversations().sort((one, other) => urgency(other) - urgency(one));
    return most.slice(0, watchedMost).map(({ token, after }) => [token, after]);
  },
  onEvent: (name, data) => handlers[name]?.(data),
  onOpen() {
    connected = true;
    atWork.clear(); // told anew, too
    for (const token of known.keys()) removePreviews(token); // what there is now is told anew
    showConnection("connected", "connected");
    draw();
    refresh(open);
    sender.retryNow();
    if (document.hidden) restIn(glanceMs);
  },
  onLost() {
    connected = false;
    showConnection("lost", "reconnecting");
    draw();
  },
  onRefused() {
    connected = false;
    showConnection("refused", isSigned ? "Your visit has ended. Reload the page." : "This chat is part of a site. Open it there.");
    draw();
  },
});

// A page that has the chat in it connects only once there is something to hear of.
const isWanted = () => isPanelShown || store.conversations().some((each) => each.last);

// A browser has six connections to one server, for all its tabs. Where nobody looks, none is held for long, and the page
// only looks now and then, as its title tells how many are unread.
let rest;

function restIn(delay) {
  clearTimeout(rest);
  rest = setTimeout(() => document.hidden && stream.rest(), delay);
}

// Nothing tells the page of a turn that ends without a reply, so it looks.
setInterval(() => {
  if (stream.isResting && isWanted()) stream.connect();
  if (!connected) return;
  for (const each of store.conversations()) if (each.pending.length) refresh(each.token);
}, lookAgainMs);

// Going out

const sender = new Sender({
  next: () => store.unsent().find((line) => !line.refused),
  filesOf: (line) => (line.attachments?.length ? filesOf(asLine(line)) : []),
  onStored(line, isTaken) {
    store.removeUnsent(line.id);
    if (!isKnown(line.conversation, line.id)) {
      const state = isTaken ? "waiting" : "refused";
      put(line.conversation, { ...line, from: "visitor", at: new Date(line.at).toISOString(), state });
      if (isTaken) store.changeConversation(line.conversation, (each) => each.pending.push(line.id));
      setTimeout(lookWhetherItWaits, toldAfterMs, line);
    }
    stream.retryNow();
    draw();
  },
  onStuck: draw,
  onRefused(line, why) {
    store.refuseUnsent(line.id, why);
    tell(`Not taken: ${why}`);
    draw();
  },
});

// By now the stream would have told of somebody at work. It tells nothing of a lane that is paused.
function lookWhetherItWaits({ conversation: token, id }) {
  if (connected && !atWork.get(token) && store.conversation(token)?.pending.includes(id)) refresh(token);
}

// The button of a question answers that question and no other, however late or often it is pressed.
function answer(question, option) {
  say(option, { answers: question.id });
  goOnWriting();
}

// Where that brings up no keyboard over what is read.
function goOnWriting() {
  if (isPanelShown && !matchMedia("(pointer: coarse)").matches) text.focus();
}

function say(words, more = {}, files = []) {
  const said = { id: store.randomId(16), conversation: open, text: words, at: Date.now(), attachments: files, ...more };
  const line = hold(said);
  store.addUnsent(line, files);
  store.noteLast(open, { ...line, from: "visitor" });
  draw();
  toTheEnd();
  stream.cover();
  stream.retryNow();
  sender.retryNow();
}

function edit(line) {
  if (line.attachments.length) putFiles(filesOf(line));
  store.removeUnsent(line.id);
  write([line.text, text.value].filter(Boolean).join("\n"));
  draw();
}

function sayAgain(line) {
  say(line.text, {}, filesOf(line));
  goOnWriting();
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

const fitsByItself = CSS.supports("field-sizing", "content"); // to what is written in it

function fitComposer() {
  showSendOrStop();
  if (fitsByItself) return;
  text.rows = 1;
  text.rows = Math.min(8, Math.floor(text.scrollHeight / Number.parseFloat(getComputedStyle(text).lineHeight)));
}

// Conversations

const trays = new Map(); // files that were chosen and not sent, by token

function choose(token) {
  if (token !== open) {
    if (document.activeElement === name) name.blur(); // what was written there is a name of the one that was open
    trays.set(open, chosenFiles());
    open = token;
    putFiles(trays.get(token) ?? []);
  }
  store.saveOpenToken(token);
  text.value = store.draft(token);
  fitComposer();
  lookedAt();
  draw();
  showOpenEntry();
  toTheEnd();
  if (isWanted()) stream.cover();
  if (connected) refresh(token);
  closeDrawer();
  goOnWriting();
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
  submit();
});

async function submit() {
  await whenReady();
  const [words, files] = [text.value.trim(), chosenFiles()];
  if (!words && !files.length) return;
  putFiles([]);
  write("");
  say(words, {}, files);
}

// Files: chosen, dropped anywhere, or pasted.

onFiles({
  changed() {
    showTray(chosenFiles(), removeFile);
    showTrouble("");
    fitComposer();
  },
  trouble: showTrouble,
});
byId("attach").hidden = !filesMost;
byId("attach").addEventListener("click", () => byId("file").click());
byId("file").addEventListener("change", async () => {
  await addFiles([...byId("file").files]);
  byId("file").value = ""; // the same one may be chosen again
  text.focus();
});

const hasFiles = (event) => filesMost > 0 && event.dataTransfer?.types.includes("Files");

document.addEventListener("dragover", (event) => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  document.body.dataset.dropping = "";
});
document.addEventListener("dragleave", (event) => event.relatedTarget || delete document.body.dataset.dropping);
document.addEventListener("drop", (event) => {
  delete document.body.dataset.dropping;
  if (!hasFiles(event)) return;
  event.preventDefault();
  addFiles([...event.dataTransfer.files]);
});
text.addEventListener("paste", (event) => {
  const files = [...(event.clipboardData?.files ?? [])];
  if (!files.length || !filesMost) return;
  event.preventDefault();
  addFiles(files);
});

byId("stop").addEventListener("click", () => say(stopWord));

onTop(readBack);

text.addEventListener("input", () => {
  noteDraft();
  if (text.value.trim() && (store.conversation(open)?.pending.length || atWork.get(open))) reportTyping(open);
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
  if (event.key !== "Enter" && event.key !== "Escape") return;
  event.preventDefault(); // else the line break would go to where the focus goes
  text.focus();
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
  if (byId("viewer").open) return; // Escape is for it
  if (isEmbedded) return void (event.key === "Escape" && tellHost("close"));
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

// Whoever has no network sees it at once; a server on the same machine stays in reach.
window.addEventListener("offline", () => isWanted() && stream.connect());
window.addEventListener("online", () => isWanted() && stream.connect());
// Another tab of this conversation has sent what it had, and with it forgotten what stands here.
window.addEventListener("pagehide", () => text.value && store.saveDraft(open, text.value));
window.addEventListener("pageshow", (event) => event.persisted && isWanted() && stream.connect());
document.addEventListener("visibilitychange", () => {
  // A machine that slept has a dead connection that looks alive.
  const isLongAway = hiddenSince && Date.now() - hiddenSince > longAwayMs;
  if (document.hidden) restIn(restAfterMs);
  else if ((isLongAway || stream.isResting) && isWanted()) stream.connect();
  hiddenSince = document.hidden ? Date.now() : null;
  lookedAt();
  draw();
});
store.onChangeElsewhere((tokensGone) => {
  if (!store.conversation(open)) return choose(someToken());
  if (tokensGone.has(open)) refresh(open);
  lookedAt();
  draw();
  if (isWanted()) stream.cover();
  sender.sendAll();
});

// The panel of the page around

byId("close").hidden = !hasPanel;
byId("close").addEventListener("click", () => tellHost("close"));
byId("title").textContent = document.body.dataset.title;
onHost((isShown) => {
  isPanelShown = isShown;
  if (!isShown) return;
  stream.cover();
  toTheEnd();
  lookedAt();
  draw();
  text.focus();
});

showTheme(document.documentElement.dataset.theme ?? "system");
const last = store.openToken();
choose(store.conversation(last) ? last : someToken());
sender.sendAll();
if (window.parent === window) text.focus(); // a page around decides itself who has the focus
