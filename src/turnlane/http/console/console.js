// The shell: who is here, which section is open, and what all of them share.

import { get, introduce, post } from "./api.js";
import { element, tell } from "./dom.js";
import { follow } from "./stream.js";

// Each section is a module of views/ with `show(root, place)`: fills `root` and returns what to call on leaving it, or
// nothing. `place.rest` is what stands after the section's name in the address, decoded, as a list; `place.query` is what
// stands after a question mark.
const SECTIONS = [
  ["lanes", "Lanes"],
  ["alerts", "Alerts"],
  ["deadletters", "Dead letters"],
  ["outbox", "Outbox"],
  ["locks", "Locks"],
  ["workers", "Workers"],
  ["schedules", "Schedules"],
  ["usage", "Usage"],
  ["sessions", "Sessions"],
  ["transcripts", "Transcripts"],
  ["settings", "Settings"],
];
const HIDDEN = ["conversation"]; // reached from the others: #/conversation/KEY

const main = document.getElementById("main");
let leave = null;
let opening = 0;

// #/conversation/site%2Falice?tab=turns -> { name: "conversation", rest: ["site/alice"], query: tab=turns }
function placeOf(hash) {
  const [path, asked = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [name, ...rest] = path.split("/").map(decoded);
  const known = SECTIONS.some(([each]) => each === name) || HIDDEN.includes(name);
  const query = new URLSearchParams(asked);
  return known ? { name, rest, query } : { name: "lanes", rest: [], query };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // typed by hand: whoever looks it up says that there is no such thing
  }
}

async function open() {
  const place = placeOf(location.hash);
  const mine = ++opening;
  mark(place.name);
  const view = await import(`./views/${place.name}.js`);
  if (mine !== opening) return; // somebody was faster
  leave?.();
  leave = null;
  const root = element("section", { class: `view ${place.name}` });
  main.replaceChildren(root);
  try {
    const left = await view.show(root, place);
    if (mine === opening) leave = left ?? null;
    else left?.();
  } catch (error) {
    root.replaceChildren(element("p", { class: "trouble", role: "alert" }, error.message));
  }
}

function mark(name) {
  document.title = `${SECTIONS.find(([each]) => each === name)?.[1] ?? "Conversation"} · Turnlane`;
  for (const link of document.querySelectorAll("#nav a")) {
    if (link.dataset.section === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  drawer(false);
}

function drawer(isOpen) {
  document.body.classList.toggle("drawer", isOpen);
  document.getElementById("menu").setAttribute("aria-expanded", String(isOpen));
}

function dressed() {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const order = ["system", "light", "dark"];
  const paint = () => {
    button.dataset.now = root.dataset.theme ?? "system";
    button.setAttribute("aria-label", `Colours: ${button.dataset.now}`);
  };
  button.addEventListener("click", () => {
    const next = order[(order.indexOf(root.dataset.theme ?? "system") + 1) % order.length];
    if (next === "system") delete root.dataset.theme;
    else root.dataset.theme = next;
    try {
      if (next === "system") localStorage.removeItem("turnlane.theme");
      else localStorage.setItem("turnlane.theme", next);
    } catch {
      // A browser that keeps nothing forgets it with the page.
    }
    paint();
    window.dispatchEvent(new Event("dressed")); // canvases know no style sheet
  });
  paint();
}

async function countAll() {
  const counts = await get("/api/counts");
  const waiting = [
    [counts.lanes.running ?? 0, "running"],
    [counts.messages_waiting, "waiting"],
    [counts.deliveries_failed, "failed"],
    [counts.dead_letters, "dead"],
    [counts.workers_live, counts.workers_live === 1 ? "worker" : "workers"],
  ];
  const parts = waiting.map(([number, word]) => element("span", { "data-count": word }, element("b", {}, String(number)), ` ${word}`));
  document.getElementById("counts").replaceChildren(...parts);
}

async function keepCounting() {
  for (;;) {
    await countAll().catch(() => null); // the line to the server says already that it is gone
    await new Promise((resolve) => setTimeout(resolve, document.hidden ? 15000 : 3000));
  }
}

async function begin() {
  const list = document.querySelector("#nav ul");
  list.append(...SECTIONS.map(([name, title]) =>
    element("li", {}, element("a", { href: `#/${name}`, "data-section": name }, title))));
  dressed();
  document.getElementById("menu").addEventListener("click", () => drawer(!document.body.classList.contains("drawer")));
  const me = await introduce();
  const button = document.getElementById("leave");
  button.hidden = me.open;
  button.addEventListener("click", async () => {
    await post("/console/logout").catch((error) => tell(error.message, { bad: true }));
    location.assign("/console/login");
  });
  document.body.dataset.role = me.role;
  window.addEventListener("hashchange", open);
  follow(() => null); // whichever section is open: what happened meanwhile is there when somebody looks at the lanes
  keepCounting();
  await open();
}

begin().catch((error) => tell(error.message, { bad: true }));
