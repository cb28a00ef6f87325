// The silence plot: how long an agent was silent before each of its calls, against how long it might have been. The line
// is where it would have been declared dead; the bar at the end is the silence that goes on now.

import { fill, h, s } from "./dom.js";
import { axis, explain, grid } from "./timeline.js";
import { duration, exact, now } from "./time.js";

const HEIGHT = 240;
const LEFT = 52;

/** Every sign of life of an agent, oldest first, and the silences that ended in a recovery. */
export function signsOf(member) {
  const found = [];
  for (const span of member.spans) {
    for (const [at, gap, allowed] of span.signs) found.push({ at, gap, allowed, span });
    if (span.state === "expired" && span.ended_at) found.push(lastSilence(span));
  }
  return found.sort((a, b) => a.at - b.at);
}

/** From the last call to the recovery. A process that was seen to exit was not given all that silence allows. */
function lastSilence(span) {
  const reach = span.died_at ? Math.max(span.recover_at, span.expires_at + span.grace_ms) : span.recover_at;
  return { at: span.ended_at, gap: span.ended_at - span.seen_at, allowed: reach - span.seen_at, span, lost: true };
}

export function silence(scale) {
  const svg = s("svg", { class: "silence", height: HEIGHT + 32, role: "group", "aria-label": "Silences over time" });
  const tip = explain(svg, ".gap");
  function draw(member) {
    const signs = signsOf(member).filter((sign) => sign.at >= scale.from && sign.at - sign.gap <= scale.to);
    const live = member.spans.find((span) => span.live);
    const most = Math.max(10_000, ...signs.map((sign) => Math.max(sign.gap, sign.allowed)), live ? live.recover_at - live.seen_at : 0) * 1.08;
    const y = (ms) => HEIGHT - (ms / most) * HEIGHT;
    const levels = rungs(most);
    fill(
      svg,
      grid(scale, HEIGHT),
      levels.map((ms) => s("g", { class: "rung" }, s("line", { x1: 0, x2: scale.width, y1: y(ms), y2: y(ms) }), s("text", { x: -8, y: y(ms) + 4 }, duration(ms)))),
      allowed(signs, live, scale, y),
      signs.map((sign) => gap(sign, scale, y)),
      live && deadline(live, scale),
      live && present(live, scale, y),
      s("g", { transform: `translate(0 ${HEIGHT + 2})` }, axis(scale, 24)),
    );
    svg.setAttribute("viewBox", `${-LEFT} -6 ${scale.width + LEFT} ${HEIGHT + 32}`);
    svg.setAttribute("width", scale.width + LEFT);
  }
  return { element: svg, draw, remove: tip.remove, left: LEFT };
}

function rungs(most) {
  const steps = [5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000, 21_600_000, 86_400_000];
  const step = steps.find((one) => most / one <= 6) ?? steps.at(-1);
  const found = [];
  for (let ms = 0; ms < most; ms += step) found.push(ms);
  return found;
}

/** The allowed silence as a line that steps with what the holder had shown, broken between leases. */
function allowed(signs, live, scale, y) {
  const lines = new Map();
  for (const { at, gap: silent, allowed: most, span } of signs) {
    const points = lines.get(span) ?? [];
    points.push([scale.x(at - silent), y(most)], [scale.x(at), y(most)]);
    lines.set(span, points);
  }
  if (live) lines.set(live, [...(lines.get(live) ?? []), [scale.x(live.seen_at), y(live.recover_at - live.seen_at)], [scale.x(Math.min(now(), scale.to)), y(live.recover_at - live.seen_at)]]);
  return [...lines.values()].map((points) => [
    s("path", { class: "allowed-area", d: `M${points[0][0]} ${HEIGHT}L${points.map((point) => point.join(" ")).join("L")}L${points.at(-1)[0]} ${HEIGHT}Z` }),
    s("path", { class: "allowed", d: `M${points.map((point) => point.join(" ")).join("L")}` }),
  ]);
}

const SHAPES = {
  "": (x, top) => s("circle", { cx: x, cy: top, r: 3.2 }),
  near: (x, top) => s("path", { d: `M${x} ${top - 5}l5 8h-10z` }),
  lost: (x, top) => s("path", { d: `M${x - 5} ${top - 5}l10 10m0 -10l-10 10` }),
};

function gap(sign, scale, y) {
  const kind = sign.lost ? "lost" : sign.gap > sign.allowed * 0.75 ? "near" : "";
  const x = scale.x(sign.at);
  const made = s(
    "g",
    { class: `gap ${kind}`, tabindex: -1 },
    s("line", { x1: x, x2: x, y1: HEIGHT, y2: y(sign.gap) }),
    SHAPES[kind](x, y(sign.gap)),
  );
  made.span = sign.span;
  made.words = sign.lost
    ? [`silent for ${duration(sign.gap)}, then recovered`, `at ${exact(sign.at)}, from ${sign.span.task_id}`, sign.span.died_at ? "its process was seen to exit" : `${duration(sign.allowed)} were allowed`]
    : [`silent for ${duration(sign.gap)}`, `until ${exact(sign.at)}, on ${sign.span.task_id}`, `${duration(sign.allowed)} would have been allowed`];
  return made;
}

function deadline(live, scale) {
  const x = scale.x(live.recover_at);
  if (x > scale.width) return null;
  return s("g", { class: "deadline" }, s("line", { x1: x, x2: x, y1: 0, y2: HEIGHT }), s("text", { x: x - 6, y: 12 }, `counts as dead ${exact(live.recover_at)}`));
}

function present(live, scale, y) {
  const x = scale.x(now());
  const silent = now() - live.seen_at;
  const made = s("g", { class: "gap running", tabindex: -1 }, s("rect", { x: x - 3, width: 6, y: y(silent), height: Math.max(0, HEIGHT - y(silent)), rx: 2 }), s("text", { x: x - 8, y: Math.min(HEIGHT - 8, y(silent) + 34) }, `silent ${duration(silent)}`));
  made.span = live;
  made.words = [`silent for ${duration(silent)} now`, `counts as dead in ${duration(live.recover_at - now())}`];
  return made;
}

export function silenceLegend() {
  const entry = (name, text) => h("span", { class: `legend ${name}` }, h("i", { "aria-hidden": "true" }), text);
  return h("div", { class: "legends" }, entry("m-allowed", "allowed silence: beyond it the holder counts as dead"), entry("m-gap", "silence before a call"), entry("m-near", "more than three quarters of what was allowed"), entry("m-running", "silence now"), entry("m-deadline", "deadline"));
}
