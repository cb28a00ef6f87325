// Moving a card: the same verb however it is asked for (drag, menu, key). The server decides; what it refuses is said.

import { ask, button, buttons, complain, toast } from "./dialogs.js";
import { h } from "./dom.js";
import { act } from "./net.js";
import { mayAct, NAMES, state } from "./state.js";
import { ago, now } from "./time.js";

// What a person can do with a card, from the column it is in. Agents get into the other columns by what they do.
const WAYS = {
  todo: ["blocked", "done"],
  in_progress: ["todo", "blocked", "done"],
  blocked: ["todo", "done"],
  done: ["todo"],
  dead: ["todo", "done"],
};
const MEANS = {
  "in_progress todo": "Take it back",
  "blocked todo": "Unblock",
  "dead todo": "Requeue",
  "done todo": "Reopen",
  blocked: "Block",
  done: "Mark as done",
};

export const ways = (card) => WAYS[card.status];
export const meaning = (card, to) => MEANS[`${card.status} ${to}`] ?? MEANS[to] ?? NAMES[to];

const ONLY_MESSAGES = "Your token speaks for an agent: it may read everything here and write messages.";

export const person = () => localStorage.getItem("tenure-name") || "operator";

/** Move a card. A live lease is taken away only after a person has said so. */
export async function move(card, to) {
  if (!mayAct()) return toast(ONLY_MESSAGES, "bad");
  if (!ways(card).includes(to)) {
    toast(`A task is not moved from ${NAMES[card.status]} to ${NAMES[to]} by hand.`, "bad");
    return;
  }
  const held = card.leases.find((lease) => lease.state === "active");
  let answer = { message: "", revoke: false };
  if (held) answer = await confirmRevocation(card, held, to);
  else if (to === "blocked") answer = await askReason(card);
  if (!answer) return;
  try {
    await act("move", { project: state.project, task_id: card.task_id, status: to, by: person(), ...answer });
    toast(`${card.task_id}: ${meaning(card, to).toLowerCase()}`);
  } catch (error) {
    // Someone claimed it between the look and the move.
    if (error.code === "task_held" && !answer.revoke) {
      const late = await confirmRevocation(card, { agent_id: error.facts.holder, seen_at: now() }, to);
      if (late) await act("move", { project: state.project, task_id: card.task_id, status: to, by: person(), ...late }).catch(complain);
      return;
    }
    complain(error);
  }
}

function confirmRevocation(card, lease, to) {
  return ask("Take the task away?", (done) => {
    const message = h("textarea", { id: "move-message", rows: 2, maxlength: 2000 });
    return h(
      "div",
      { class: "dialog-body" },
      h("p", null, h("strong", null, lease.agent_id), " holds ", h("strong", null, card.task_id), " and gave its last sign of life ", ago(lease.seen_at), "."),
      h("p", null, `Moving it to ${NAMES[to]} revokes the lease. ${lease.agent_id} is told on its next call; its progress goes into the handoff.`),
      h("label", { for: "move-message" }, to === "blocked" ? "What blocks it" : "Message for the thread (optional)"),
      message,
      buttons(
        button("Keep it", () => done(null), "", { autofocus: true }),
        button(to === "todo" ? "Revoke the lease" : `Revoke and ${meaning(card, to).toLowerCase()}`, () => done({ message: message.value, revoke: true }), "danger", { data: { confirm: "" } }),
      ),
    );
  });
}

function askReason(card) {
  return ask(`Block ${card.task_id}`, (done) => {
    const reason = h("textarea", { id: "move-message", rows: 3, maxlength: 2000, autofocus: true });
    return h(
      "div",
      { class: "dialog-body" },
      h("label", { for: "move-message" }, "What blocks it"),
      reason,
      buttons(button("Cancel", () => done(null)), button("Block", () => done({ message: reason.value, revoke: false }), "primary", { data: { confirm: "" } })),
    );
  });
}

/** Choose where a card goes: the way without a mouse. */
export async function chooseMove(card) {
  if (!mayAct()) return toast(ONLY_MESSAGES, "bad");
  const to = await ask(`Move ${card.task_id}`, (done) =>
    h(
      "div",
      { class: "dialog-body" },
      h("p", { class: "muted" }, card.title),
      h(
        "div",
        { class: "choices" },
        ways(card).map((way, index) =>
          h(
            "button",
            { type: "button", class: "choice", autofocus: index === 0, data: { to: way }, onclick: () => done(way) },
            h("span", { class: `dot ${way}` }),
            h("span", null, meaning(card, way)),
            h("span", { class: "muted" }, NAMES[way]),
          ),
        ),
      ),
    ),
  );
  if (to) await move(card, to);
}

/** Give a dead, blocked or waiting task a new start. */
export async function requeue(card) {
  if (!mayAct()) return toast(ONLY_MESSAGES, "bad");
  try {
    await act("requeue", { project: state.project, task_id: card.task_id, by: person() });
    toast(`${card.task_id} is on offer again`);
  } catch (error) {
    complain(error);
  }
}

/** Add a task. */
export async function addTask() {
  if (!mayAct()) return toast(ONLY_MESSAGES, "bad");
  const fields = await ask("New task", (done) => {
    const title = h("input", { id: "new-title", maxlength: 500, required: true, autofocus: true });
    const body = h("textarea", { id: "new-body", rows: 6 });
    const kind = h("input", { id: "new-kind", maxlength: 64, list: "kinds", placeholder: "code, review, docs…" });
    const level = h("select", { id: "new-priority" }, ["critical", "high", "medium", "low"].map((name) => h("option", { value: name, selected: name === "medium" }, name)));
    const add = () => title.value.trim() && done({ title: title.value.trim(), body: body.value, kind: kind.value.trim(), priority: level.value });
    title.addEventListener("keydown", (event) => event.key === "Enter" && add());
    return h(
      "div",
      { class: "dialog-body" },
      h("label", { for: "new-title" }, "Title"),
      title,
      h("label", { for: "new-body" }, "What is to be done"),
      body,
      h("div", { class: "pair" }, h("div", null, h("label", { for: "new-kind" }, "Kind"), kind), h("div", null, h("label", { for: "new-priority" }, "Priority"), level)),
      h("datalist", { id: "kinds" }, state.kinds.map((name) => h("option", { value: name }))),
      buttons(button("Cancel", () => done(null)), button("Add", add, "primary", { data: { confirm: "" } })),
    );
  });
  if (!fields) return;
  try {
    const task = await act("add", { project: state.project, ...fields });
    toast(`Added ${task.task_id}`);
  } catch (error) {
    complain(error);
  }
}
