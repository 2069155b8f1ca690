// Small pieces that every section is made of.

import { element } from "./dom.js";
import { ago, moment } from "./time.js";

const whole = new Intl.NumberFormat("en");
const LONG_CHARACTERS = 1200;

export const count = (number) => whole.format(number);

// 1 message, 2 messages
export const many = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

// Money in whole units, with as many places as are needed to see it.
export const money = (amount) => (amount === 0 || amount >= 0.01 ? amount.toFixed(2) : amount.toPrecision(2));

// The store counts in millionths.
export const costOf = (usage) => usage.cost / 1e6;

export const tokensOf = (usage) => usage.input_tokens + usage.output_tokens;

// "1,204 tokens, 0.02"; nothing where nothing is known.
export function spent(usage) {
  if (!tokensOf(usage) && !usage.cost) return null;
  return [
    `${count(tokensOf(usage))} tokens`,
    usage.cost ? `cost ${money(costOf(usage))}` : null,
  ].filter(Boolean).join(", ");
}

// Of states and outcomes, wherever they are shown.
export const TONES = {
  answered: "good", sent: "good", idle: "good",
  running: "busy", gathering: "busy", ready: "busy", queued: "busy",
  waiting: "warm", paused: "warm", superseded: "quiet", retried: "quiet", dropped: "quiet",
  dead_letter: "wrong", failed: "wrong", parked: "wrong", held: "wrong", lost: "wrong",
};

// Always a word with a colour, never a colour alone. Tones: good, busy, warm, wrong, quiet.
export const badge = (word, tone = "quiet") => element("span", { class: "badge", "data-tone": tone }, word);

export const time = (at) => (at ? element("time", { datetime: at, title: at }, moment(at)) : "–");

// How long ago, counting on.
export const since = (at) => element("time", { datetime: at, title: at, "data-since": at }, ago(at));

// What others wrote, however it is written: directions of writing end where it ends.
export const said = (text) => element("bdi", {}, String(text));

// A text of any length in a box that does not grow without end.
export function words(text, kind = "p") {
  const isLong = text.length > LONG_CHARACTERS;
  const label = isLong ? "A long text" : null;
  return element(kind, {
    class: isLong ? "words long" : "words",
    dir: "auto",
    tabindex: isLong ? 0 : null,
    role: isLong ? "group" : null,
    "aria-label": label,
  },
    text);
}

export const storyOf = (key) => `#/conversation/${encodeURIComponent(key)}`;

// A conversation's key is percent-encoded; people read it decoded.
export function named(key) {
  try {
    return key.split("/").map(decodeURIComponent).join("/");
  } catch {
    return key;
  }
}

export const link = (key) => element("a", { href: storyOf(key), title: key }, said(named(key)));
