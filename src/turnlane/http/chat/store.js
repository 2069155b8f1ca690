// What outlives a reload: the list of conversations with their tokens, drafts, and lines the server has not stored yet.
// Everything is read anew each time, as other tabs of the same browser keep theirs in the same place.

import { host, isSigned } from "./host.js";

export const channel = document.body.dataset.channel;

// What a signed visitor leaves here is not found by the next one.
const prefix = `turnlane.${channel}.${isSigned ? `as.${host.visitor}.` : ""}`;
const snippetMost = 140;

// Where the browser keeps nothing, or no more, it lives as long as the page.
const memory = new Map();

function read(name) {
  if (memory.has(name)) return memory.get(name);
  try {
    return localStorage.getItem(prefix + name);
  } catch {
    return null;
  }
}

function write(name, text) {
  try {
    if (text === null) localStorage.removeItem(prefix + name);
    else localStorage.setItem(prefix + name, text);
    memory.delete(name);
  } catch {
    memory.set(name, text);
  }
}

function parseList(text) {
  try {
    const list = JSON.parse(text ?? "[]");
    return Array.isArray(list) ? list : [];
  } catch {
    return [];
  }
}

const readList = (name) => parseList(read(name));

const writeList = (name, list) => write(name, JSON.stringify(list));

export function randomId(bytes) {
  return Array.from(crypto.getRandomValues(new Uint8Array(bytes)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// Conversations. `after` is the last reply known, `seen` the last one looked at, `unread` how many came since, `pending`
// the ids that wait for one. A signed visitor has one, on all devices; the server knows which.

const fresh = (token) => ({ token, name: "", first: "", last: null, after: 0, seen: 0, unread: 0, pending: [], begun: Date.now() });
const latest = (conversation) => conversation.last?.at ?? conversation.begun;

export function conversations() {
  return readList("conversations").sort((one, other) => latest(other) - latest(one));
}

export function conversation(token) {
  return readList("conversations").find((each) => each.token === token);
}

export function addConversation(token = isSigned ? "me" : randomId(24)) {
  writeList("conversations", [...readList("conversations"), fresh(token)]);
  return token;
}

export function changeConversation(token, change) {
  const list = readList("conversations");
  const found = list.find((each) => each.token === token);
  if (!found) return;
  const before = JSON.stringify(found);
  change(found);
  // Two tabs that write at the same moment overwrite each other: whoever has nothing to say says nothing.
  if (JSON.stringify(found) !== before) writeList("conversations", list);
}

// What is on the list of a browser can only be read with its token, so removing it can be taken back for a while.
export function removeConversation(token) {
  const removed = { kept: conversation(token), lines: unsent(token), draft: draft(token) };
  const files = removed.lines.map((line) => [`files.${line.id}`, read(`files.${line.id}`)]);
  for (const [name] of files) write(name, null);
  writeList("conversations", readList("conversations").filter((each) => each.token !== token));
  writeList("unsent", readList("unsent").filter((line) => line.conversation !== token));
  write(`draft.${token}`, null);
  return () => {
    writeList("conversations", [...readList("conversations"), removed.kept]);
    for (const [name, text] of files) write(name, text);
    writeList("unsent", [...readList("unsent"), ...removed.lines]);
    saveDraft(token, removed.draft);
  };
}

export function noteLast(token, { from, text, at, kind, attachments }) {
  changeConversation(token, (each) => {
    const words = text || attachments?.map((file) => file.name).join(", ") || "";
    each.last = { from, text: words.slice(0, snippetMost), at: new Date(at).getTime(), kind };
    if (from === "visitor") each.first ||= each.last.text;
  });
}

// Lines that were typed and that the server has not stored yet. A refused one stays until the person decides. Their files
// lie beside them, as they are large and seldom looked at.

export function unsent(token) {
  return readList("unsent").filter((line) => !token || line.conversation === token);
}

export function addUnsent(line, files) {
  if (files.length) writeList(`files.${line.id}`, files);
  writeList("unsent", [...readList("unsent"), line]);
}

export const unsentFiles = (id) => readList(`files.${id}`);

export function removeUnsent(id) {
  write(`files.${id}`, null);
  writeList("unsent", readList("unsent").filter((line) => line.id !== id));
}

export function refuseUnsent(id, why) {
  writeList("unsent", readList("unsent").map((line) => (line.id === id ? { ...line, refused: why } : line)));
}

export const draft = (token) => read(`draft.${token}`) ?? "";
export const saveDraft = (token, text) => write(`draft.${token}`, text || null);

// Which one is open is each tab's own business.

export function openToken() {
  try {
    return sessionStorage.getItem(`${prefix}open`);
  } catch {
    return null;
  }
}

export function saveOpenToken(token) {
  try {
    sessionStorage.setItem(`${prefix}open`, token);
  } catch {
    // The next reload opens the latest one instead.
  }
}

// Tells which conversations had lines that went: they were stored, or taken back. What they are about is asked of the
// server, as what another tab notes of a conversation may be overwritten by a third one.
export function onChangeElsewhere(notify) {
  window.addEventListener("storage", (event) => {
    if (event.key === `${prefix}unsent`) notify(tokensGone(event));
    else if (event.key === null || event.key === `${prefix}conversations`) notify(new Set());
  });
}

function tokensGone({ oldValue, newValue }) {
  const left = new Set(parseList(newValue).map((line) => line.id));
  return new Set(parseList(oldValue).filter((line) => !left.has(line.id)).map((line) => line.conversation));
}

// The page once had a single conversation, whose token lay here.
const single = read("token");
if (single) {
  if (!conversation(single)) addConversation(single);
  write("token", null);
}
