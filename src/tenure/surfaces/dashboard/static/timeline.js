// An agent's leases in time: a bar per lease, a tick per sign of life, and marks for what ended it or came after.

import { fill, h, s } from "./dom.js";
import { parts } from "./ring.js";
import { duration, exact, now } from "./time.js";

const ENDS = { completed: "completed", released: "released", revoked: "revoked", expired: "recovered" };

/** What a bar's end is called, for its colour and its legend. */
export function ending(span) {
  if (span.live) return "live";
  if (!span.ended_at) return "recovered";
  return span.state === "completed" && span.end_reason !== "completed" ? "failed" : (ENDS[span.state] ?? span.state);
}

/** The bars of one agent. */
export function bars(scale, member, { height = 34, ticks = true } = {}) {
  const middle = height / 2;
  const thick = Math.min(18, height - 22);
  const top = middle - thick / 2;
  const drawn = [];
  for (const span of [...member.spans].reverse()) {
    const end = span.ended_at ?? (span.live ? now() : span.recover_at);
    if (end < scale.from || span.granted_at > scale.to) continue;
    const x = Math.max(-4, scale.x(span.granted_at));
    const right = Math.min(scale.width + 4, scale.x(end));
    const width = Math.max(3, right - x);
    const kind = ending(span);
    const group = s(
      "g",
      { class: `span ${kind}`, tabindex: 0, role: "img", "aria-label": words(span, kind).join(". "), data: { lease: span.lease_id } },
      s("rect", { class: "span-hit", x, y: 0, width, height }),
      s("rect", { class: "span-bar", x, y: top, width, height: thick, rx: 3 }),
    );
    if (span.live) allowance(group, scale, span, top, thick);
    if (ticks) for (const [at] of span.signs) if (at >= scale.from && at <= scale.to) group.append(s("line", { class: "sign", x1: scale.x(at), x2: scale.x(at), y1: top + thick + 3, y2: top + thick + 8 }));
    if (width > 46) group.append(label(span, x, width, middle));
    marks(group, scale, span, right, middle, top);
    group.span = span;
    drawn.push(group);
  }
  return drawn;
}

/** What the holder may still be silent for: its term, grace and extension, ahead of now. */
function allowance(group, scale, span, top, thick) {
  const { expires, grace, end } = parts(span);
  let from = now();
  for (const [name, to] of [["term", expires], ["grace", grace], ["extension", end]]) {
    if (to <= from) continue;
    group.append(s("rect", { class: `ahead ${name}`, x: scale.x(from), y: top + thick / 2 - 2, width: Math.max(1, scale.x(to) - scale.x(from)), height: 4, rx: 1 }));
    from = to;
  }
}

function label(span, x, width, middle) {
  const room = Math.floor((width - 10) / 6.4);
  const text = span.task_id.length > room ? `${span.task_id.slice(0, Math.max(1, room - 1))}…` : span.task_id;
  return s("text", { class: "span-label", x: Math.max(x, 0) + 6, y: middle + 3.5 }, text);
}

function marks(group, scale, span, right, middle, top) {
  if (span.state === "expired") group.append(s("path", { class: "mark recovery", d: `M${right - 5} ${middle - 5}l10 10m0 -10l-10 10` }));
  if (span.handed_over_at) group.append(s("path", { class: "mark handover", d: `M${right - 4} ${top - 6}h8l-4 5z` }));
  if (span.returned_at) {
    const x = scale.x(span.returned_at);
    group.append(s("path", { class: "mark zombie", d: `M${x} ${middle - 6}l6 6l-6 6l-6 -6z` }));
  }
}

/** A bar in the words of `why`. */
export function words(span, kind = ending(span)) {
  const end = span.ended_at ?? now();
  const lines = [
    `${span.task_id}: held ${duration(end - span.granted_at)} from ${exact(span.granted_at)}${span.phase ? ` (${span.phase})` : ` (${span.profile})`}`,
    `${span.touches} calls, ${span.reports} reports, ${span.progress} %`,
  ];
  if (span.median_gap_ms !== null) lines.push(`a mark every ${duration(span.median_gap_ms)} (median)`);
  for (const told of span.told) lines.push(told.text);
  if (kind === "live") lines.push(`counts as dead in ${duration(span.recover_at - now())} without a sign of life; carried by its ${span.carried}`);
  if (!span.told.length && span.ended_at) lines.push(`${kind} at ${exact(span.ended_at)}`);
  if (span.handed_over_at) lines.push("left a handoff");
  return lines;
}

/** The axis above the rows. */
export function axis(scale, height = 22) {
  return scale.ticks().map(({ at, text }) =>
    s("g", { class: "tick" }, s("line", { x1: scale.x(at), x2: scale.x(at), y1: height - 5, y2: height }), s("text", { x: scale.x(at), y: height - 8 }, text)),
  );
}

export function grid(scale, height) {
  return scale.ticks().map(({ at }) => s("line", { class: "grid", x1: scale.x(at), x2: scale.x(at), y1: 0, y2: height }));
}

/** Explain what the pointer or the focus is on. */
export function explain(area, find) {
  const tip = h("div", { class: "tip", role: "tooltip", hidden: true });
  document.body.append(tip);
  const show = (event) => {
    const target = event.target.closest?.(find);
    const span = target?.span;
    if (!span) return hide();
    const [title, ...lines] = target.words ?? words(span);
    fill(tip, h("b", null, title), lines.map((line) => h("p", null, line)));
    tip.hidden = false;
    const box = target.getBoundingClientRect();
    const at = event.clientX ?? box.left + box.width / 2;
    const width = tip.offsetWidth;
    tip.style.left = `${Math.max(8, Math.min(innerWidth - width - 8, at - width / 2))}px`;
    const below = box.bottom + 8;
    tip.style.top = `${below + tip.offsetHeight > innerHeight ? box.top - tip.offsetHeight - 8 : below}px`;
    return undefined;
  };
  const hide = () => {
    tip.hidden = true;
  };
  area.addEventListener("pointermove", show);
  area.addEventListener("focusin", show);
  area.addEventListener("pointerleave", hide);
  area.addEventListener("focusout", hide);
  return { hide, remove: () => tip.remove() };
}

export function legend() {
  const entry = (name, text) => h("span", { class: `legend ${name}` }, h("i", { "aria-hidden": "true" }), text);
  return h(
    "div",
    { class: "legends" },
    entry("live", "held now"),
    entry("completed", "completed"),
    entry("released", "given back"),
    entry("recovered", "recovered"),
    entry("revoked", "taken away"),
    entry("m-sign", "sign of life"),
    entry("m-handover", "handoff"),
    entry("m-recovery", "recovery"),
    entry("m-zombie", "came back"),
  );
}
