// Time is the server's: its clock at the last message, and what this page has seen pass since. While nothing is heard,
// time stands still here, because what it would show is not known.

import { h, say } from "./dom.js";

let base = Date.now();
let heardAt = performance.now();
let frozenAt = null;

/** The server told its time. */
export function heard(now) {
  base = now;
  heardAt = performance.now();
  frozenAt = null;
}

/** An answer carried the server's time. It says nothing about whether changes are still heard. */
export function correct(now) {
  base = now;
  heardAt = performance.now();
}

/** Nothing is heard any more. */
export function freeze() {
  frozenAt ??= now();
}

/** The server's time now, in milliseconds. */
export function now() {
  return frozenAt ?? base + (performance.now() - heardAt);
}

const UNITS = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "m"],
  [1_000, "s"],
];

/** A duration in at most two units: "1 m 12 s". */
export function duration(ms) {
  let left = Math.max(0, Math.round(ms / 1000)) * 1000;
  const parts = [];
  for (const [unit, name] of UNITS) {
    if (left >= unit || (unit === 1000 && !parts.length)) {
      parts.push(`${Math.floor(left / unit)} ${name}`);
      left %= unit;
    }
    if (parts.length === 2) break;
  }
  return parts.join(" ");
}

/** The same where there is little room: "1:12", "45s", "3h". */
export function brief(ms) {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)}h${String(Math.floor((seconds % 3600) / 60)).padStart(2, "0")}`;
  return `${Math.floor(seconds / 86_400)}d`;
}

/** "3 m ago", "in 20 s". */
export function relative(at) {
  const gap = at - now();
  if (Math.abs(gap) < 1500) return "now";
  const [unit, name] = UNITS.find(([size]) => Math.abs(gap) >= size) ?? UNITS.at(-1);
  const amount = `${Math.round(Math.abs(gap) / unit)} ${name}`;
  return gap < 0 ? `${amount} ago` : `in ${amount}`;
}

const ABSOLUTE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });
const EXACT = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

export const absolute = (at) => ABSOLUTE.format(at);
export const clock = (at) => CLOCK.format(at);
export const exact = (at) => EXACT.format(at);

/** A time as people read it: relative, the absolute one on hover, kept up to date. */
export function ago(at) {
  return h("time", { datetime: new Date(at).toISOString(), title: absolute(at), data: { at } }, relative(at));
}

/** Once a second: every relative time on the page. */
export function refreshTimes() {
  for (const element of document.querySelectorAll("time[data-at]")) say(element, relative(Number(element.dataset.at)));
}
