// The lease ring: the whole circle is the silence this holder is allowed, from its last sign of life to the instant from
// which it counts as dead. It drains clockwise. Three parts, told apart by colour and by shape:
//   term       a solid line      what the phase (or the fixed time) gives
//   grace      dashes            after the term
//   extension  dots              the agent's own cadence, a link that sees it, or a silence it announced

import { s, say } from "./dom.js";
import { brief, duration, now } from "./time.js";

const TURN = 2 * Math.PI;

/** The instants of a lease that its ring is drawn from. */
export function parts(lease) {
  const start = lease.seen_at;
  const end = Math.max(lease.recover_at, start + 1);
  const expires = Math.min(Math.max(lease.expires_at, start), end);
  const grace = Math.min(expires + lease.grace_ms, end);
  return { start, expires, grace, end };
}

/** Where a lease stands: which part it is in, and how much time is left of that and of everything. */
export function standing(lease, at = now()) {
  const { start, expires, grace, end } = parts(lease);
  const part = at < expires ? "term" : at < grace ? "grace" : at < end ? "extension" : "over";
  const until = { term: expires, grace, extension: end, over: end }[part];
  const word = {
    term: lease.state === "offered" ? "offered" : lease.phase || "term",
    grace: "grace",
    extension: lease.extension || "extended",
    over: "recovery due",
  }[part];
  return { part, word, left: end - at, untilPart: until - at, fraction: Math.min(1, Math.max(0, (at - start) / (end - start))) };
}

/** What a ring says in words. */
export function sentence(lease) {
  const { part, word, left } = standing(lease);
  if (part === "over") return `${lease.agent_id}: recovery due`;
  return `${lease.agent_id}: ${word}, counts as dead in ${duration(left)} without a sign of life`;
}

export function ring(lease, size = 40) {
  const arcs = {};
  const made = s(
    "svg",
    { class: "ring", width: size, height: size, viewBox: "0 0 40 40", role: "img" },
    s("circle", { class: "ring-track", cx: 20, cy: 20, r: 16 }),
    ...["term", "grace", "extension"].map((name) => (arcs[name] = s("path", { class: `ring-${name}` }))),
    s("text", { class: "ring-text", x: 20, y: 20 }),
  );
  made.arcs = arcs;
  made.label = made.lastChild;
  drain(made, lease);
  return made;
}

/** Draw what is left now. */
export function drain(element, lease) {
  const { start, expires, grace, end } = parts(lease);
  const { part, left, fraction, word } = standing(lease);
  const share = (at) => (at - start) / (end - start);
  const bounds = { term: [0, share(expires)], grace: [share(expires), share(grace)], extension: [share(grace), 1] };
  for (const [name, [from, to]] of Object.entries(bounds)) {
    element.arcs[name].setAttribute("d", arc(Math.max(from, fraction), to));
  }
  if (element.dataset.part !== part) element.dataset.part = part;
  say(element.label, part === "over" ? "due" : brief(left));
  element.setAttribute("aria-label", part === "over" ? "recovery due" : `${word}, ${duration(left)} left`);
}

function arc(from, to) {
  if (to - from < 0.002) return "";
  const sweep = Math.min(to - from, 0.9995);
  const point = (share) => {
    const angle = share * TURN - TURN / 4;
    return `${(20 + 16 * Math.cos(angle)).toFixed(2)} ${(20 + 16 * Math.sin(angle)).toFixed(2)}`;
  };
  return `M${point(from)}A16 16 0 ${sweep > 0.5 ? 1 : 0} 1 ${point(from + sweep)}`;
}
