// The page around this one, if this one is part of another site's page: what it says of its visitor and its looks, and
// what it is told. It is asked once, before anything begins; whoever has put the frame there without our script never
// answers, and the chat begins without.

const answerMostMs = 2_000;

export const isEmbedded = document.body.dataset.form === "embedded";
const around = isEmbedded && window.parent !== window ? window.parent : null;

let origin = null; // of the page around; nobody else is listened to, or told anything
let obey = () => {};

function begun() {
  if (!around) return {};
  return new Promise((resolve) => {
    window.addEventListener("message", ({ source, origin: from, data }) => {
      if (source !== around || typeof data?.turnlane !== "string") return;
      if (data.turnlane === "begin" && !origin) {
        origin = from;
        resolve(data);
      } else if (from === origin) obey(data.turnlane);
    });
    around.postMessage({ turnlane: "ready" }, "*");
    setTimeout(resolve, answerMostMs, {});
  });
}

export const host = await begun();

const { visitor, signature, expires } = host;
export const isSigned = Boolean(visitor && signature);

// In a header, never in an address: those are logged and kept in lists.
export const proof = isSigned ? { "Turnlane-Visitor": [encodeURIComponent(visitor), expires, signature].filter(Boolean).join("|") } : {};

export const hasPanel = Boolean(origin);
export const isShownAtFirst = !hasPanel || Boolean(host.isOpen);

export function onHost(notify) {
  obey = (what) => notify(what === "open");
}

export function tellHost(what, more = {}) {
  if (origin) around.postMessage({ turnlane: what, ...more }, origin);
}

if (typeof host.title === "string" && host.title) document.body.dataset.title = host.title.slice(0, 80);

// A colour of the site's own, if it is one, with what can be read on it.
const [, hex] = /^#([0-9a-f]{6})$/i.exec(host.colour ?? "") ?? [];
if (hex) {
  const [red, green, blue] = [0, 2, 4].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
  const isLight = 0.3 * red + 0.59 * green + 0.11 * blue > 150;
  const { style } = document.documentElement;
  for (const name of ["--bubble", "--head"]) style.setProperty(name, `#${hex}`);
  for (const name of ["--on-bubble", "--on-head"]) style.setProperty(name, isLight ? "#101513" : "#ffffff");
}
