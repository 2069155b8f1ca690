// Looking again, gently: soon while something moves, later while nothing does, seldom while nobody looks.

import { ago } from "./time.js";

const HIDDEN_MS = 30000;
const TROUBLE_MS_MAX = 30000;

// `look` says whether something was new. Returns { again, stop }; `again` looks now, for whoever has just changed
// something, and is done when that is seen.
export function keepFresh(look, { soon = 1500, late = 6000 } = {}) {
  let pause = soon;
  let timer = null;
  let stopped = false;
  let last = Promise.resolve();
  let queued = null;

  async function round() {
    clearTimeout(timer);
    if (stopped) return;
    try {
      pause = (await look()) ? soon : Math.min(late, pause * 1.3);
    } catch {
      pause = Math.min(TROUBLE_MS_MAX, pause * 2); // whoever looks has said so
    }
    clearTimeout(timer);
    if (!stopped) timer = setTimeout(again, document.hidden ? HIDDEN_MS : pause);
  }

  // Never two at once: the older answer could be painted last. Whoever asks before it began is content with it, too.
  function again() {
    queued ??= last.then(() => {
      queued = null;
      return round();
    });
    last = queued;
    return queued;
  }

  const seen = () => document.hidden || again();
  document.addEventListener("visibilitychange", seen);
  timer = setTimeout(again, soon);
  const stop = () => {
    stopped = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", seen);
  };
  return { again, stop };
}

// <time data-since="…"> counts by itself, whatever else is painted or not.
setInterval(() => {
  if (document.hidden) return;
  for (const each of document.querySelectorAll("time[data-since]")) {
    const text = ago(each.dataset.since);
    if (each.textContent !== text) each.textContent = text;
  }
}, 1000);
