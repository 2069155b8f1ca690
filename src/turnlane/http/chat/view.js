// What is seen. Everything that people and agents wrote goes in as text, never as markup.

import { isPicture, save, sizeName, urlOf } from "./files.js";
import { rendered } from "./markdown.js";

const byId = (id) => document.getElementById(id);
const lines = byId("lines");
const list = byId("conversations");
const scroll = byId("scroll");
const newest = byId("newest");

export const titleOf = (conversation) => conversation.name || conversation.first || "New conversation";

function element(kind, className, ...children) {
  const made = document.createElement(kind);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

// Elements stay where they are as long as they can: a moved one would lose the focus and be read aloud again.
function arrange(parent, items, make, update) {
  const present = new Map(Array.from(parent.children, (child) => [child.dataset.key, child]));
  const wanted = new Set(items.map((item) => item.key));
  for (const [key, child] of present) if (!wanted.has(key)) child.remove();
  let place = parent.firstElementChild;
  for (const item of items) {
    const child = present.get(item.key) ?? make(item);
    child.dataset.key = item.key;
    const look = JSON.stringify(item);
    if (child.look !== look) update(child, item);
    child.look = look;
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
}

// Times

const clock = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat([], { weekday: "long", day: "numeric", month: "long" });
const shortDay = new Intl.DateTimeFormat([], { day: "numeric", month: "short" });

function isToday(date, daysAgo = 0) {
  const then = new Date();
  then.setDate(then.getDate() - daysAgo);
  return date.toDateString() === then.toDateString();
}

const dayName = (date) => (isToday(date) ? "Today" : isToday(date, 1) ? "Yesterday" : day.format(date));
const shortTime = (date) => (isToday(date) ? clock : shortDay).format(date);

function timeElement(date, text) {
  const time = element("time", "", text);
  time.dateTime = date.toISOString();
  time.title = date.toLocaleString();
  return time;
}

// The lines of the open conversation

// A question is open until the person says something that waits for the agent: a command, say, does not.
const lastOnItsWay = (said) => said.findLastIndex((line) => isOnItsWay.has(line.state));

// Whether it is the person's turn. Of a question without options only the next line tells that it was answered.
export function isAsked(said) {
  const lastSaid = lastOnItsWay(said);
  return said.at(-1)?.kind === "question" || said.some((line, place) => line.options?.length > 0 && place > lastSaid);
}

export function showLines(said, { isSent, answering, ...actions }) {
  const before = lines.lastElementChild?.dataset.key;
  const [first, height, top, stayed] = [said[0]?.id, scroll.scrollHeight, scroll.scrollTop, atTheEnd && isAtTheEnd()];
  const lastSaid = lastOnItsWay(said);
  const asOpen = (line, place) => ({ ...line, isSent, isOpen: line.options?.length > 0 && place > lastSaid });
  arrange(lines, withDays(said.map(asOpen)), makeLine, (item, line) => {
    if (line.day) item.replaceChildren(element("span", "", line.day));
    else fillLine(item, line, actions);
  });
  byId("empty").hidden = said.length > 0;
  byId("answering").hidden = !answering;
  if (stayed) toTheEnd();
  // Older lines came in above: what was being read stays where it is.
  else if (firstShown !== first) scroll.scrollTop = top + scroll.scrollHeight - height;
  else if (said.at(-1)?.from === "bot" && lines.lastElementChild.dataset.key !== before) newest.hidden = false;
  firstShown = first;
}

let firstShown;

// Whoever listens hears what is new, and not what is only shown: another conversation, older lines, half an answer.
export function tell(words) {
  byId("heard").replaceChildren(element("p", "", withoutMarks(words)));
}

const isOnItsWay = new Set(["sending", "waiting", "kept"]);

function withDays(said) {
  const rows = [];
  for (const [place, line] of said.entries()) {
    const date = new Date(line.at).toDateString();
    const previous = said[place - 1];
    const isNewDay = !previous || new Date(previous.at).toDateString() !== date;
    if (isNewDay) rows.push({ key: `day ${line.id}`, day: dayName(new Date(line.at)) });
    const turned = isNewDay || previous.from !== line.from;
    const ends = said[place + 1]?.from !== line.from;
    rows.push({ ...line, key: line.id, turned, ends });
  }
  return rows;
}

function makeLine(line) {
  if (line.day) return element("li", "day");
  const parts = ["files", "words", "options", "about"].map((part) => element("div", part));
  parts[1].dir = "auto"; // as it was written, whichever way that runs
  const who = element("span", "unseen", line.from === "visitor" ? "You: " : "Reply: ");
  return element("li", `line ${line.from}`, who, ...parts);
}

function fillLine(item, line, { edit, sayAgain, choose }) {
  const [, files, words, options, about] = item.children;
  const date = new Date(line.at);
  item.classList.toggle("turned", line.turned);
  item.classList.toggle("partial", Boolean(line.partial));
  item.dataset.state = line.state ?? "";
  item.dataset.kind = line.kind ?? "";
  if (files.childElementCount !== (line.attachments?.length ?? 0)) {
    files.replaceChildren(...line.attachments.map((file, place) => fileElement(line, file, place)));
  }
  fillWords(words, line);
  fillOptions(options, line, choose);
  const remark = remarkOn(line);
  about.replaceChildren();
  about.classList.toggle("later", !line.ends && !remark); // seen when somebody points there
  about.append(timeElement(date, clock.format(date)), remark && ` · ${remark}`);
  if (line.refused) about.append(" ", aboutButton("Edit", () => edit(line)));
  else if (isUnanswered(line)) about.append(" ", aboutButton("Send again", () => sayAgain(line)));
}

function aboutButton(words, act) {
  const button = element("button", "", words);
  button.type = "button";
  button.addEventListener("click", act);
  return button;
}

function fillOptions(options, line, choose) {
  const open = line.isOpen ? line.options : [];
  const shown = Array.from(options.children, (button) => button.textContent);
  if (JSON.stringify(open) === JSON.stringify(shown)) return; // one of them may have the focus
  options.replaceChildren(...open.map((option) => optionButton(option, line, choose)));
}

function fillWords(words, { from, text }) {
  words.hidden = !text;
  if (words.source === text) return;
  words.source = text;
  if (from === "visitor") words.textContent = text;
  else words.replaceChildren(rendered(text));
  for (const code of words.querySelectorAll("pre > code")) code.parentElement.append(copyButton(code));
}

function copyButton(code) {
  const button = element("button", "copy", "Copy");
  button.type = "button";
  button.addEventListener("click", async () => {
    button.textContent = (await copied(code)) ? "Copied" : "Press Ctrl + C";
    setTimeout(() => (button.textContent = "Copy"), 2_000);
  });
  return button;
}

async function copied(code) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(code); // where the page may not, the person can
    return false;
  }
}

function fileElement(line, file, place) {
  const button = element("button");
  button.type = "button";
  const url = urlOf(line, place);
  if (isPicture(file) && url) {
    button.className = "picture";
    button.title = button.ariaLabel = `Enlarge ${file.name}`;
    const picture = element("img");
    picture.alt = file.name;
    picture.addEventListener("load", () => atTheEnd && toTheEnd());
    picture.src = url;
    button.append(picture);
    button.addEventListener("click", () => enlarge(file.name, url));
  } else {
    button.className = "chip";
    button.disabled = !url;
    button.title = `Save ${file.name}`;
    button.append(element("span", "", file.name ?? "file"), element("small", "", sizeName(file.size ?? 0)));
    button.addEventListener("click", () => save(file.name ?? "file", url));
  }
  return button;
}

const viewer = byId("viewer");

function enlarge(name, url) {
  viewer.querySelector("img").src = url;
  viewer.querySelector("img").alt = name;
  viewer.querySelector("figcaption").textContent = name;
  viewer.showModal();
}

viewer.addEventListener("click", () => viewer.close());

// What goes with the message that is being written

export function showTray(files, remove) {
  const chips = files.map((file, place) => {
    const button = element("button", "icon", "×");
    button.type = "button";
    button.ariaLabel = `Leave ${file.name} out`;
    button.addEventListener("click", () => remove(place));
    const preview = isPicture(file) ? element("img") : "";
    if (preview) [preview.src, preview.alt] = [file.url, ""];
    return element("li", "", preview, element("span", "", file.name), element("small", "", sizeName(file.size)), button);
  });
  byId("tray").replaceChildren(...chips);
}

export function showTrouble(words) {
  byId("trouble").textContent = words;
  byId("trouble").hidden = !words;
}

function optionButton(option, line, choose) {
  const button = element("button", "", option);
  button.type = "button";
  button.addEventListener("click", () => choose(line, option));
  return button;
}

const fates = { refused: "not taken", dropped: "dropped, as too much was waiting", given_up: "could not be answered" };
const isUnanswered = ({ state }) => state in fates;

function remarkOn({ from, text, state, isSent, refused, kind, ends }) {
  if (state === "sending") return isSent ? "sending…" : "kept, will be sent";
  if (refused) return `not taken: ${refused}`;
  if (state in fates) return fates[state];
  if (state === "set_aside") return "set aside";
  if ((state === "waiting" || state === "kept") && ends) return "stored";
  if (kind === "operator") return "by a person";
  if (from === "bot" && !text) return "an empty answer";
  return "";
}

// Whoever reads the end stays there, also when a phone's keyboard takes half of the screen.

let atTheEnd = true;
let end = 0;

export function toTheEnd() {
  atTheEnd = true;
  scroll.scrollTop = scroll.scrollHeight;
  end = scroll.scrollTop;
  newest.hidden = true;
}

// Whoever has just scrolled up is not there any more, though the browser has not told it yet.
function isAtTheEnd() {
  return scroll.scrollTop >= end - 60 || scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 60;
}

newest.addEventListener("click", toTheEnd);
scroll.addEventListener("scroll", () => {
  atTheEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 60;
  if (atTheEnd) newest.hidden = true;
  if (scroll.scrollTop < 200) atTop();
});

let atTop = () => {};

export function onTop(notify) {
  atTop = notify;
}

new ResizeObserver(() => atTheEnd && toTheEnd()).observe(scroll);

// The list of conversations: one stop for the Tab key, arrows inside it.

function snippetOf(last) {
  if (!last) return "Nothing said yet";
  return last.from === "visitor" ? `You: ${last.text}` : withoutMarks(last.text) || "An empty answer";
}

const withoutMarks = (text) => text.replace(/\*\*|`+|^#+ /gm, "");

export function showList(conversations, { open, connected, atWork, asked }) {
  const isTheirTurn = (each) => (each.token === open ? asked : each.last?.kind === "question");
  const focused = list.contains(document.activeElement) ? document.activeElement : null;
  const items = conversations.map((each) => ({
    key: each.token,
    title: titleOf(each),
    words: snippetOf(each.last),
    time: each.last ? shortTime(new Date(each.last.at)) : "",
    at: each.last?.at,
    unread: each.after > each.seen,
    answering: connected && (each.pending.length > 0 || atWork.get(each.token) === true) && !isTheirTurn(each),
    isOpen: each.token === open,
  }));
  arrange(list, items, makeEntry, fillEntry);
  focused?.focus();
  const unread = items.filter((item) => item.unread).length;
  byId("drawer").classList.toggle("unread", unread > 0);
  const current = items.find((item) => item.isOpen);
  document.title = `${unread ? `(${unread}) ` : ""}${current ? `${current.title.slice(0, 60)} · ` : ""}${document.body.dataset.title}`;
}

function makeEntry() {
  const [title, snippet] = [element("strong"), element("span", "snippet")];
  title.dir = snippet.dir = "auto";
  const button = element("button", "", title, element("span", "when"), snippet, element("span", "badge"));
  button.type = "button";
  return element("li", "", button);
}

function fillEntry(item, { title, words, time, at, unread, answering, isOpen }) {
  const button = item.firstElementChild;
  const [strong, when, snippet, badge] = button.children;
  strong.textContent = title;
  when.replaceChildren(at ? timeElement(new Date(at), time) : "");
  snippet.textContent = answering ? "Answering…" : words;
  snippet.classList.toggle("answering", answering);
  badge.textContent = unread ? "unread" : "";
  item.classList.toggle("unread", unread);
  button.tabIndex = isOpen ? 0 : -1;
  if (isOpen) button.setAttribute("aria-current", "true");
  else button.removeAttribute("aria-current");
}

const buttons = () => Array.from(list.querySelectorAll("button"));
const tokenOf = (button) => button.closest("li").dataset.key;

export function onList({ choose, rename, remove }) {
  list.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) choose(tokenOf(button));
  });
  list.addEventListener("keydown", (event) => {
    const place = buttons().indexOf(document.activeElement);
    const last = buttons().length - 1;
    const goTo = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: last }[event.key];
    if (goTo !== undefined) buttons()[Math.max(0, Math.min(last, goTo))].focus();
    else if (event.key === "F2") rename(tokenOf(document.activeElement));
    else if (event.key === "Delete") {
      remove(tokenOf(document.activeElement));
      buttons()[Math.min(place, buttons().length - 1)].focus(); // whoever works in the list stays in it
    } else return;
    event.preventDefault();
  });
}

export function showOpenEntry() {
  list.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
}

export function focusList() {
  (list.querySelector("[aria-current]") ?? buttons()[0])?.focus();
}

// The connection

export function showConnection(state, words) {
  const status = byId("connection");
  if (status.dataset.state === state) return;
  status.dataset.state = state;
  status.firstElementChild.textContent = words;
}
