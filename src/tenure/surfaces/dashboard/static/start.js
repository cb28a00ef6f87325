// The first run: what an empty board says.

import { complain, toast } from "./dialogs.js";
import { h, icon } from "./dom.js";
import { addTask } from "./moves.js";
import { act } from "./net.js";
import { state } from "./state.js";

export function firstRun() {
  const origin = location.origin;
  return h(
    "section",
    { class: "first", "aria-labelledby": "first-title" },
    h("h2", { id: "first-title" }, "Nothing to do yet"),
    h("p", { class: "muted" }, "A task is work that one agent at a time holds under a lease. There are three ways to add one:"),
    h(
      "ol",
      { class: "ways" },
      way("On the command line", code(`tenure task add "Fix the login page"`)),
      way("Over HTTP", code(`curl -X POST ${origin}/tasks \\\n  -H 'Content-Type: application/json' \\\n  -d '{"task_summary": "Fix the login page"}'`)),
      way("Right here", h("p", null, h("button", { type: "button", class: "button", onclick: addTask }, icon("plus"), "New task"))),
    ),
    h(
      "div",
      { class: "first-foot" },
      h("div", null, h("h3", null, "Or look around first"), h("p", { class: "muted" }, "Seven small tasks of a bookshop that depend on each other. Delete them whenever you like.")),
      h("button", { type: "button", class: "button primary", id: "load-example", onclick: load }, "Load the example project"),
    ),
  );
}

function way(title, content) {
  return h("li", null, h("h3", null, title), content);
}

function code(text) {
  return h("pre", { class: "code", tabindex: 0 }, text);
}

async function load() {
  try {
    await act("example", { project: state.project });
    toast("The example project is loaded");
  } catch (error) {
    complain(error);
  }
}
