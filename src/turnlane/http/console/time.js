// Times and durations as people read them.

const clock = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat([], { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

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
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
  return `${(seconds / 86400).toFixed(1)} d`;
}

export const ago = (at, now = Date.now()) => duration(Math.max(0, now - new Date(at)));
