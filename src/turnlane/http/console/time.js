// Times and durations as people read them.

const minutes = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
const clock = new Intl.DateTimeFormat([], { ...minutes, second: "2-digit" });
const day = new Intl.DateTimeFormat([], { day: "numeric", month: "short", ...minutes });

// 12:03:04, or with its day if that is not today.
export function moment(at) {
  const date = new Date(at);
  return date.toDateString() === new Date().toDateString() ? clock.format(date) : day.format(date);
}

// 1.2 s, 3 min, 2 h, 5 d
export function duration(milliseconds) {
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 3600) return both(seconds, 60, "min", "s");
  if (seconds < 86400) return both(seconds / 60, 60, "h", "min");
  return `${(seconds / 86400).toFixed(1)} d`;
}

// 15 min, 15 min 3 s: what is nothing is not said.
function both(number, unit, great, small) {
  const rest = Math.floor(number % unit);
  return `${Math.floor(number / unit)} ${great}${rest ? ` ${rest} ${small}` : ""}`;
}

export const ago = (at, now = Date.now()) => duration(Math.max(0, now - new Date(at)));
