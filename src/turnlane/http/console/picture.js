// One picture of the board: the rows that are seen, as they were until a moment.

import { IDLE, MARKS, RUNNING, STATES, openSpans, stateOf } from "./fold.js";
import { duration } from "./time.js";

export const AXIS = 24; // pixels, as all below
const BAR = 10;
const LABEL_WIDTH = 84;
const NARROW = 120; // a gutter with less room for names has none for channels
const STEPS_MS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800].map((seconds) => seconds * 1000);

export function paint(board, end) {
  const { context } = board;
  context.setTransform(board.ratio, 0, 0, board.ratio, 0, 0);
  context.fillStyle = board.ink.paper;
  context.fillRect(0, 0, board.width, board.height);
  const top = board.scroller.scrollTop;
  const first = Math.max(0, Math.floor(top / board.row));
  const last = Math.min(board.rows.length, Math.ceil((top + board.height - AXIS) / board.row));
  const y = (place) => AXIS + place * board.row - top;
  rules(board, first, last, y, end);
  context.save();
  context.beginPath();
  context.rect(board.gutter, AXIS, board.width - board.gutter, board.height);
  context.clip();
  bars(board, first, last, y, end);
  marks(board, first, last, y, end);
  context.restore();
  gutter(board, first, last, y, end);
  axis(board, end);
}

function rules(board, first, last, y, end) {
  const { context } = board;
  for (const place of [board.pointed, board.focus]) {
    if (place < first || place >= last) continue;
    context.fillStyle = board.ink.hover;
    context.fillRect(0, y(place), board.width, board.row);
  }
  context.fillStyle = board.ink.edge;
  context.globalAlpha = 0.55;
  for (let place = first; place < last; place += 1) context.fillRect(0, y(place) + board.row - 1, board.width, 1);
  for (const at of ticks(board, end)) context.fillRect(board.x(at, end), AXIS, 1, board.height);
  context.globalAlpha = 1;
}

function ticks(board, end) {
  const width = board.width - board.gutter;
  const step = STEPS_MS.find((each) => (each * width) / board.span >= LABEL_WIDTH) ?? STEPS_MS.at(-1);
  const found = [];
  for (let at = Math.floor(end / step) * step; at > end - board.span; at -= step) found.push(at);
  return found;
}

// All of one colour together: changing it is what costs.
function bars(board, first, last, y, end) {
  const begin = end - board.span;
  const shapes = STATES.map(() => []);
  const add = (state, from, to, top) => {
    const left = Math.max(board.x(from, end), board.gutter - 8);
    shapes[state].push(left, top, Math.max(2, board.x(to, end) - left));
  };
  for (let place = first; place < last; place += 1) {
    const lane = board.rows[place];
    const top = y(place) + (board.row - BAR) / 2;
    for (const [state, from, to] of openSpans(lane, end)) if (to > begin) add(state, from, to, top);
    for (let i = lane.past.length - 3; i >= 0 && lane.past[i + 2] > begin; i -= 3) {
      if (lane.past[i + 1] < end) add(lane.past[i], lane.past[i + 1], Math.min(lane.past[i + 2], end), top);
    }
  }
  shapes.forEach((shape, state) => fill(board, shape, state));
}

function fill(board, shape, state) {
  if (shape.length === 0) return;
  const { context } = board;
  context.fillStyle = board.colours[state];
  context.beginPath();
  for (let i = 0; i < shape.length; i += 3) {
    const width = shape[i + 2];
    if (width < 5) context.rect(shape[i], shape[i + 1], width, BAR);
    else context.roundRect(shape[i], shape[i + 1], width, BAR, 3);
  }
  context.globalAlpha = state === RUNNING ? 1 : 0.82;
  context.fill();
  context.globalAlpha = 1;
}

function marks(board, first, last, y, end) {
  const begin = end - board.span;
  const places = MARKS.map(() => []);
  for (let place = first; place < last; place += 1) {
    const seen = board.rows[place].marks;
    const middle = y(place) + board.row / 2;
    const latest = MARKS.map(() => Infinity);
    for (let i = seen.length - 2; i >= 0 && seen[i + 1] > begin; i -= 2) {
      const x = board.x(seen[i + 1], end);
      if (latest[seen[i]] - x < 2) continue; // they would cover each other
      latest[seen[i]] = x;
      if (x <= board.width + 4) places[seen[i]].push(x, middle);
    }
  }
  places.forEach((found, kind) => found.length && mark(board, MARKS[kind], found));
}

function mark(board, kind, found) {
  const [colour, shape, filled] = {
    message: [board.ink.ink, dot, true],
    heard: [board.ink.faint, dot, true],
    refused: [board.ink.wrong, dot, false],
    sent: [board.ink.ink, arrow, true],
    retried: [board.colours[4], ring, false],
    crashed: [board.ink.wrong, cross, false],
    dead: [board.ink.wrong, diamond, true],
    undelivered: [board.ink.wrong, arrow, true],
  }[kind];
  const { context } = board;
  context.beginPath();
  for (let i = 0; i < found.length; i += 2) shape(context, found[i], found[i + 1]);
  if (kind !== "message" && kind !== "sent") {
    context.strokeStyle = board.ink.paper; // so that it stands out from the bar beneath
    context.lineWidth = 4;
    context.stroke();
  }
  context.fillStyle = context.strokeStyle = colour;
  context.lineWidth = 1.8;
  if (filled) context.fill();
  else context.stroke();
}

function gutter(board, first, last, y, end) {
  const { context } = board;
  context.fillStyle = board.ink.paper;
  context.globalAlpha = 0.93;
  context.fillRect(0, AXIS, board.gutter - 4, board.height);
  context.globalAlpha = 1;
  context.textBaseline = "middle";
  for (let place = first; place < last; place += 1) {
    const lane = board.rows[place];
    const middle = y(place) + board.row / 2;
    const state = stateOf(lane, end);
    if (place === board.focus || place === board.pointed) {
      context.fillStyle = board.ink.hover;
      context.fillRect(0, y(place), board.gutter - 4, board.row - 1);
    }
    context.fillStyle = board.colours[state];
    context.beginPath();
    context.arc(14, middle, state === IDLE ? 3 : 4.5, 0, 7);
    context.fill();
    name(board, lane, middle, state);
  }
  context.fillStyle = board.ink.edge;
  context.fillRect(board.gutter - 4, AXIS, 1, board.height);
  if (board.focus >= first && board.focus < last && board.scroller.matches(":focus-visible")) {
    context.strokeStyle = board.ink.accent;
    context.lineWidth = 2;
    context.strokeRect(1, y(board.focus) + 1, board.width - 2, board.row - 3);
  }
}

function name(board, lane, middle, state) {
  const { context } = board;
  const waiting = lane.pending > 1 ? String(lane.pending) : "";
  const room = board.gutter - 42 - (waiting ? 18 : 0);
  context.font = `13px ${board.font}`;
  const kept = board.names.get(lane);
  const name = kept?.room === room ? kept.name : fitted(context, lane, room);
  if (kept?.room !== room) board.names.set(lane, { room, name });
  context.fillStyle = state === IDLE ? board.ink.faint : board.ink.ink;
  context.fillText(name, 26, middle);
  if (waiting) {
    context.fillStyle = board.ink.faint;
    context.font = `11px ${board.font}`;
    context.textAlign = "right";
    context.fillText(waiting, board.gutter - 12, middle);
    context.textAlign = "left";
  }
}

function axis(board, end) {
  const { context } = board;
  context.fillStyle = board.ink.side;
  context.fillRect(0, 0, board.width, AXIS);
  context.fillStyle = board.ink.edge;
  context.fillRect(0, AXIS - 1, board.width, 1);
  context.font = `11px ${board.font}`;
  context.textBaseline = "middle";
  context.fillStyle = board.ink.faint;
  context.fillText(`${duration(board.span)} ${board.isLive ? "up to now" : "held"}`, 12, AXIS / 2);
  context.textAlign = "center";
  for (const at of ticks(board, end)) {
    const x = board.x(at, end);
    if (x > board.gutter + 20 && x < board.width - 24) context.fillText(clock.format(at), x, AXIS / 2);
  }
  context.textAlign = "left";
}

const clock = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

function fitted(context, lane, room) {
  const whole = `${lane.channel} · ${lane.room}`;
  if (room > NARROW && context.measureText(whole).width <= room) return whole;
  let name = lane.room;
  while (name.length > 2 && context.measureText(`${name}…`).width > room) name = name.slice(0, -1);
  return name === lane.room ? name : `${name}…`;
}

// Marks

function dot(context, x, y) {
  context.moveTo(x + 2, y - 8);
  context.arc(x, y - 8, 2, 0, 7);
}

function ring(context, x, y) {
  context.moveTo(x + 3.5, y);
  context.arc(x, y, 3.5, 0, 7);
}

function arrow(context, x, y) {
  context.moveTo(x, y + 5.5);
  context.lineTo(x + 3, y + 10);
  context.lineTo(x - 3, y + 10);
  context.closePath();
}

function cross(context, x, y) {
  context.moveTo(x - 4, y - 4);
  context.lineTo(x + 4, y + 4);
  context.moveTo(x + 4, y - 4);
  context.lineTo(x - 4, y + 4);
}

function diamond(context, x, y) {
  context.moveTo(x, y - 5);
  context.lineTo(x + 5, y);
  context.lineTo(x, y + 5);
  context.lineTo(x - 5, y);
  context.closePath();
}
