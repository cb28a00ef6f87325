// One card. Its height is fixed, so that a column of thousands can be drawn by its visible part alone.

import { h, icon, priority } from "./dom.js";
import { drain, ring, sentence, standing } from "./ring.js";
import { mayAct } from "./state.js";
import { ago } from "./time.js";
import { address } from "./url.js";

export const CARD_HEIGHT = 108;
export const GAP = 8;

export function card(task) {
  const lease = task.leases[0];
  const made = h(
    "article",
    {
      class: "card",
      draggable: String(mayAct()),
      tabindex: -1,
      data: { id: task.task_id, status: task.status },
      "aria-label": label(task),
    },
    h(
      "div",
      { class: "card-top" },
      priority(task.priority),
      h("a", { class: "card-id", href: address({ task: task.task_id }), tabindex: -1, draggable: "false" }, task.task_id),
      task.kind && h("span", { class: "chip" }, task.kind),
      task.due && h("span", { class: "chip due" }, "recovery due"),
    ),
    h("p", { class: "card-title", title: task.title }, task.title),
    foot(task, lease),
    // Shown where there is no mouse to drag with.
    mayAct() && h("button", { type: "button", class: "card-move", tabindex: -1, "aria-label": `Move ${task.task_id}` }, icon("move")),
  );
  if (task.due) made.classList.add("is-due");
  if (lease) {
    made.append(ring(lease));
    made.ring = made.lastChild;
    made.lease = lease;
    tick(made);
  }
  return made;
}

function foot(task, lease) {
  const parts = [];
  if (lease) {
    parts.push(who(lease.agent_id), h("span", { class: "card-phase" }));
    if (task.progress) parts.push(progress(task.progress));
  } else if (task.due) {
    parts.push(h("span", null, "its holder counts as dead"));
  } else if (task.status === "blocked") {
    parts.push(h("span", { class: "ellipsis", title: task.blocked_reason }, icon("lock", 12), task.blocked_reason || "blocked"));
  } else if (task.status === "dead") {
    parts.push(h("span", null, task.outcome === "canceled" ? "canceled" : `${task.attempts} attempts used`));
  } else if (task.status === "done") {
    parts.push(who(task.assigned_to ?? ""), task.done_at && ago(task.done_at));
  } else if (task.unmet) {
    const open = task.needs.filter((need) => need.state !== "done");
    const names = open.map((need) => need.task_id + (need.state === "missing" ? " (missing)" : "")).join(", ");
    parts.push(h("span", { class: "ellipsis", title: `Waits for ${names}` }, icon("link", 12), `waits for ${names}`));
  } else if (task.waits_until) {
    parts.push(h("span", null, "starts ", ago(task.waits_until)));
  } else if (task.assigned_to) {
    parts.push(h("span", null, "kept for "), who(task.assigned_to));
  } else {
    parts.push(h("span", { class: "ready" }, "ready"), task.attempts ? h("span", null, `attempt ${task.attempts + 1}`) : ago(task.created_at));
  }
  if (task.left && !lease && task.status !== "done") {
    parts.push(h("span", { class: "chip handoff", title: `Taken over from ${task.left.agent_id}: ${task.left.reason}` }, icon("handoff", 12), "handoff"));
  }
  return h("div", { class: "card-foot" }, parts);
}

function progress(percent) {
  return h(
    "span",
    { class: "progress", role: "img", "aria-label": `${percent} % done`, title: `${percent} %` },
    h("span", { class: "progress-bar", style: { width: `${percent}%` } }),
  );
}

/** An agent's name beside its colour, which is made from the name. */
export function who(name) {
  if (!name) return null;
  return h("span", { class: "who" }, h("span", { class: `avatar tone-${tone(name)}`, "aria-hidden": "true" }, initials(name)), h("span", { class: "ellipsis" }, name));
}

export function tone(name) {
  let sum = 0;
  for (const letter of name) sum = (sum * 31 + letter.codePointAt(0)) % 997;
  return sum % 8;
}

function initials(name) {
  const parts = name.split(/[^\p{L}\p{N}]+/u).filter(Boolean);
  return ((parts[0]?.[0] ?? "?") + (parts.length > 1 ? parts.at(-1)[0] : "")).toUpperCase();
}

function label(task) {
  const held = task.leases[0] ? `. ${sentence(task.leases[0])}` : "";
  return `${task.task_id}, ${task.title}, ${task.priority} priority, ${task.status.replace("_", " ")}${task.due ? ", recovery due" : ""}${held}`;
}

/** Let the ring drain. */
export function tick(element) {
  if (!element.ring) return;
  drain(element.ring, element.lease);
  const { part, word } = standing(element.lease);
  if (element.dataset.part !== part) element.dataset.part = part;
  const phase = element.querySelector(".card-phase");
  if (phase && phase.textContent !== word) phase.textContent = word;
}
