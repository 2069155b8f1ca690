// The lanes drawn in time: one row a conversation, now at the right edge. Only what is seen is drawn, on one canvas.

import { STATES } from "./fold.js";
import { AXIS, paint } from "./picture.js";

export const SPAN_MS_MIN = 10_000;
export const SPAN_MS_MAX = 3_600_000;
const SPAN_MS = 60_000;
const ZOOM = 1.5;
const MOVES_BY = 0.5; // pixels: less than this is not seen
const SLIPS = 4; // a hand that moves less than this has not moved
const CALM_MS = 1000; // between two pictures, for who wants no motion

export class Board {
  // `rows`: the lanes to show, in order. `focus`: the row that keys move, or -1.
  constructor(scroller, { now, onOpen, onPoint }) {
    Object.assign(this, { scroller, now, onOpen, onPoint, rows: [], span: SPAN_MS, heldAt: null, focus: -1, pointed: -1 });
    this.canvas = scroller.querySelector("canvas");
    this.spacer = scroller.querySelector(".height");
    this.context = this.canvas.getContext("2d", { alpha: false });
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
    this.names = new WeakMap();
    this.fingers = new Map(); // that touch it, and where
    this.drawn = { at: 0, count: 0, ms: 0 };
    this.dirty = true;
    this.#listen();
    this.dress();
    this.measure();
  }

  #listen() {
    const ending = (this.ending = new AbortController());
    const on = (target, name, act, more = {}) => target.addEventListener(name, act, { signal: ending.signal, ...more });
    this.observer = new ResizeObserver(() => this.measure());
    this.observer.observe(this.scroller);
    on(this.scroller, "scroll", () => this.touch());
    on(this.scroller, "wheel", (event) => this.#wheel(event), { passive: false });
    on(this.scroller, "pointermove", (event) => this.#moved(event));
    on(this.scroller, "pointerleave", () => this.#point(-1));
    on(this.scroller, "pointerdown", (event) => this.#pressed(event));
    for (const name of ["pointerup", "pointercancel"]) on(this.scroller, name, (event) => this.fingers.delete(event.pointerId));
    on(this.scroller, "click", (event) => this.#clicked(event));
    on(window, "dressed", () => this.dress());
    on(matchMedia("(prefers-color-scheme: dark)"), "change", () => this.dress());
    this.frame = requestAnimationFrame((at) => this.#tick(at));
  }

  close() {
    this.ending.abort();
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
  }

  touch() {
    this.dirty = true;
  }

  show(rows) {
    this.rows = rows;
    this.spacer.style.height = `${AXIS + rows.length * this.row}px`;
    this.touch();
  }

  // How it looks

  dress() {
    const probe = document.createElement("i");
    this.scroller.append(probe);
    const colour = (name) => {
      probe.style.color = `var(--${name})`;
      return getComputedStyle(probe).color;
    };
    this.colours = STATES.map(colour);
    this.ink = Object.fromEntries(["paper", "sheet", "side", "ink", "faint", "edge", "hover", "accent", "wrong", "warm"].map((name) => [name, colour(name)]));
    this.font = getComputedStyle(this.scroller).fontFamily;
    probe.remove();
    this.touch();
  }

  measure() {
    const { clientWidth: width, clientHeight: height } = this.scroller;
    const ratio = window.devicePixelRatio || 1;
    const narrow = width < 600;
    this.row = narrow ? 32 : 26;
    this.gutter = Math.round(narrow ? Math.min(132, width * 0.36) : Math.min(280, width * 0.26));
    Object.assign(this, { width, height, ratio, names: new WeakMap() });
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.show(this.rows);
  }

  // Time

  get end() {
    return this.heldAt ?? this.now();
  }

  get isLive() {
    return this.heldAt === null;
  }

  hold(at = this.now()) {
    this.heldAt = at;
    this.touch();
  }

  go() {
    this.heldAt = null;
    this.touch();
  }

  pan(share) {
    const at = this.end + share * this.span;
    if (at >= this.now()) this.go();
    else this.hold(at);
  }

  zoom(closer) {
    this.span = bounded(closer ? this.span / ZOOM : this.span * ZOOM);
    this.touch();
  }

  x(at, end) {
    return this.width - ((end - at) * (this.width - this.gutter)) / this.span;
  }

  // Rows

  get page() {
    return Math.max(1, Math.floor((this.height - AXIS) / this.row) - 1);
  }

  rowAt(y) {
    const place = Math.floor((y - AXIS + this.scroller.scrollTop) / this.row);
    return y > AXIS && place >= 0 && place < this.rows.length ? place : -1;
  }

  moveFocus(place) {
    this.focus = Math.max(0, Math.min(this.rows.length - 1, place));
    const top = this.focus * this.row;
    const { scrollTop } = this.scroller;
    if (top < scrollTop) this.scroller.scrollTop = top;
    else if (top + this.row > scrollTop + this.height - AXIS) this.scroller.scrollTop = top + this.row - this.height + AXIS;
    this.touch();
    this.onPoint(this.rows[this.focus] ?? null, this.gutter, AXIS + top - this.scroller.scrollTop, { byKey: true });
  }

  // Hands

  #wheel(event) {
    if (event.ctrlKey || event.metaKey || this.#within(event).y < AXIS) {
      event.preventDefault();
      this.zoom(event.deltaY < 0);
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      this.pan(event.deltaX / (this.width - this.gutter));
    }
  }

  #within(event) {
    const box = this.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  #moved(event) {
    if (event.buttons) this.#dragged(event);
    const { x, y } = this.#within(event);
    if (event.pointerType === "mouse") this.#point(this.rowAt(y), x, y);
  }

  // One finger, or the mouse, draws the past into sight; two move it closer or further away. Up and down is scrolling.
  #dragged(event) {
    const before = this.fingers.get(event.pointerId);
    if (before === undefined) return;
    const [other] = [...this.fingers].filter(([id]) => id !== event.pointerId);
    if (other !== undefined) {
      const [was, is] = [before, event.clientX].map((x) => Math.max(20, Math.abs(x - other[1])));
      this.span = bounded((this.span * was) / is);
      this.hasDragged = true;
    } else if (this.hasDragged || Math.abs(before - event.clientX) > SLIPS) {
      this.pan((before - event.clientX) / (this.width - this.gutter));
      this.hasDragged = true;
    } else {
      return;
    }
    this.fingers.set(event.pointerId, event.clientX);
    this.touch();
  }

  #point(place, x = 0, y = 0) {
    if (place !== this.pointed) this.touch();
    this.pointed = place;
    this.onPoint(place < 0 ? null : this.rows[place], x, y, { byKey: false });
  }

  #pressed(event) {
    this.fingers.set(event.pointerId, event.clientX);
    this.hasDragged = false;
  }

  #clicked(event) {
    const place = this.rowAt(this.#within(event).y);
    if (!this.hasDragged && place >= 0) this.onOpen(this.rows[place]);
  }

  // Drawing

  // For who wants no motion, time goes on in steps.
  #nextEnd() {
    const rests = this.calm.matches && this.isLive && this.now() - this.drawn.at < CALM_MS;
    return rests ? this.drawn.at : this.end;
  }

  #tick(at) {
    this.frame = requestAnimationFrame((next) => this.#tick(next));
    const end = this.#nextEnd();
    const moved = (Math.abs(end - this.drawn.at) * (this.width - this.gutter)) / this.span;
    if (!this.dirty && moved < MOVES_BY) return;
    const began = performance.now();
    this.dirty = false;
    this.drawn.at = end;
    paint(this, end);
    this.drawn.count += 1;
    this.drawn.ms = performance.now() - began;
    this.onDrawn?.(at, this.drawn.ms);
  }
}

const bounded = (span) => Math.min(SPAN_MS_MAX, Math.max(SPAN_MS_MIN, span));
