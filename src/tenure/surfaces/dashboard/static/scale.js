// A stretch of time on the screen, shared by everything that is drawn along it. It ends now unless someone moved it.

import { clock, exact, now } from "./time.js";

export const SPANS = [
  [15 * 60_000, "15 m"],
  [60 * 60_000, "1 h"],
  [6 * 3_600_000, "6 h"],
  [24 * 3_600_000, "24 h"],
  [7 * 86_400_000, "7 d"],
];
const LEAST_MS = 20_000;
const MOST_MS = 30 * 86_400_000;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400].map((seconds) => seconds * 1000);

export class Scale {
  constructor(span) {
    this.span = span;
    // Where it ends when it does not end now.
    this.pinned = null;
    this.width = 600;
    // How far ahead of now there is something to see: a deadline.
    this.lead = 0;
    this.changed = () => {};
  }

  get to() {
    return this.pinned ?? now() + Math.max(this.span * 0.02, Math.min(this.lead * 1.1, this.span * 0.25));
  }

  get from() {
    return this.to - this.span;
  }

  x(at) {
    return ((at - this.from) / this.span) * this.width;
  }

  at(x) {
    return this.from + (x / this.width) * this.span;
  }

  set(span) {
    this.span = Math.min(MOST_MS, Math.max(LEAST_MS, span));
    this.changed();
  }

  follow() {
    this.pinned = null;
    this.changed();
  }

  zoom(factor, x = this.width) {
    const anchor = this.at(x);
    const span = Math.min(MOST_MS, Math.max(LEAST_MS, this.span * factor));
    const share = x / this.width;
    this.span = span;
    if (this.pinned !== null || share < 0.9) this.pin(anchor + span * (1 - share));
    this.changed();
  }

  pan(dx) {
    this.pin(this.to - (dx / this.width) * this.span);
    this.changed();
  }

  pin(to) {
    this.pinned = to >= now() ? null : to;
  }

  /** The instants to label: round ones, not too close. */
  ticks(room = 90) {
    const least = (this.span * room) / this.width;
    const step = STEPS.find((one) => one >= least) ?? Math.ceil(least / STEPS.at(-1)) * STEPS.at(-1);
    const offset = new Date().getTimezoneOffset() * 60_000;
    const found = [];
    for (let at = Math.ceil((this.from - offset) / step) * step + offset; at <= this.to; at += step) {
      found.push({ at, text: step < 60_000 ? exact(at) : step >= 86_400_000 ? new Date(at).toLocaleDateString() : clock(at) });
    }
    return found;
  }

  /** Let an element zoom by wheel and pan by dragging. */
  attach(element) {
    element.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey && !event.shiftKey && Math.abs(event.deltaY) < Math.abs(event.deltaX)) return this.pan(-event.deltaX);
        if (!event.ctrlKey && !event.altKey) return undefined;
        event.preventDefault();
        return this.zoom(Math.exp(event.deltaY / 300), event.offsetX);
      },
      { passive: false },
    );
    let held = null;
    element.addEventListener("pointerdown", (event) => {
      if (event.button === 0 && !event.target.closest("a")) held = event.clientX;
    });
    element.addEventListener("pointermove", (event) => {
      if (held === null || !(event.buttons & 1)) return;
      this.pan(event.clientX - held);
      held = event.clientX;
    });
    element.addEventListener("pointerup", () => (held = null));
    element.addEventListener("dblclick", (event) => this.zoom(0.5, event.offsetX));
  }
}
