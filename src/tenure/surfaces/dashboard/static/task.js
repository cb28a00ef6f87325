// One task: what it says, who holds it, what was handed over, what happened, what is owed, and who talks about it.

import { who } from "./card.js";
import { complain } from "./dialogs.js";
import { fill, h, icon, priority, say } from "./dom.js";
import { graph } from "./graph.js";
import { chooseMove, meaning, move, person, ways } from "./moves.js";
import { act, get } from "./net.js";
import { drain, ring, sentence, standing } from "./ring.js";
import { mayAct, NAMES, state, subscribe } from "./state.js";
import { absolute, ago, exact } from "./time.js";
import { address } from "./url.js";

export function task(main, taskId) {
  const head = h("header", { class: "bar" }, h("a", { class: "button quiet", href: address({}), "aria-label": "Back to the board" }, icon("back")), h("h1", null, taskId));
  const left = h("div", { class: "task-main" });
  const right = h("aside", { class: "task-side", "aria-label": "Facts" });
  fill(main, head, h("div", { class: "page task-page" }, left, right));
  let seen = null;
  let rings = [];
  const slots = [];
  // A part of the page is drawn again only when what it shows has changed: nobody loses a place or a selection.
  const slot = (home, shows, make) => {
    const element = h("div", { class: "slot" });
    home.append(element);
    slots.push({ element, shows, make, last: null });
  };
  slot(left, (it) => it.leases, (it) => ((rings = []), holding(it, rings)));
  slot(left, (it) => it.handoffs, handoffs);
  slot(left, (it) => it.instructions, instructions);
  const thread = h("div", { class: "slot" });
  left.append(h("section", { class: "panel" }, h("h2", null, "Messages"), thread, compose(taskId, () => load())));
  slots.push({ element: thread, shows: (it) => it.messages, make: messages, last: null });
  slot(left, (it) => [it.receipts, it.verified], receipts);
  slot(right, (it) => [it.status, it.attempts, it.progress, it.updated_at, it.obligation, it.blocked_reason], facts);
  slot(right, (it) => it.graph, dependencies);
  slot(right, (it) => [it.status, it.conditions], why);
  slot(right, (it) => it.decisions, decisions);
  slot(right, (it) => it.story, story);

  async function load() {
    try {
      seen = await get(`/dashboard/tasks/${encodeURIComponent(taskId)}`, { project: state.project });
    } catch (error) {
      if (!seen) fill(left, h("div", { class: "empty" }, h("h2", null, error.message), h("p", { class: "muted" }, error.next)));
      return;
    }
    draw();
  }

  function draw() {
    const it = seen;
    fill(
      head,
      h("a", { class: "button quiet", href: address({}), "aria-label": "Back to the board" }, icon("back")),
      h("span", { class: "mono muted" }, it.task_id),
      h("h1", { class: "task-title" }, it.title),
      h("span", { class: `tag ${it.status}` }, it.due ? "recovery due" : NAMES[it.status]),
      h(
        "div",
        { class: "bar-tools" },
        mayAct() && ways(it).slice(0, 1).map((to) => h("button", { type: "button", class: "button", onclick: () => move(it, to) }, meaning(it, to))),
        mayAct() && h("button", { type: "button", class: "button", onclick: () => chooseMove(it) }, icon("move"), "Move…"),
      ),
    );
    for (const part of slots) {
      const shown = JSON.stringify(part.shows(it));
      if (shown === part.last) continue;
      part.last = shown;
      fill(part.element, part.make(it));
    }
  }

  let waiting = 0;
  const stop = subscribe((change) => {
    if (change.cards !== null && !change.cards.has(taskId)) return;
    clearTimeout(waiting);
    waiting = setTimeout(load, 150);
  });
  load();
  return {
    tick: () => {
      for (const one of rings) one();
    },
    stop: () => {
      stop();
      clearTimeout(waiting);
    },
  };
}

function panel(title, ...children) {
  return h("section", { class: "panel" }, h("h2", null, title), children);
}

function holding(it, rings) {
  if (!it.leases.length) return null;
  return h(
    "section",
    { class: "panel holding" },
    it.leases.map((lease) => {
      const circle = ring(lease, 72);
      const words = h("p", null, sentence(lease));
      const phase = h("span", { class: "tag" }, standing(lease).word);
      rings.push(() => {
        drain(circle, lease);
        say(words, sentence(lease));
        say(phase, standing(lease).word);
      });
      return h(
        "div",
        { class: "holder" },
        circle,
        h("div", null, h("p", { class: "holder-who" }, h("a", { href: address({ view: "agent", agent: lease.agent_id }) }, who(lease.agent_id)), phase, lease.stuck && h("span", { class: "tag warn" }, "stuck")), words, h("p", { class: "muted" }, "last sign of life ", ago(lease.seen_at), ", held since ", ago(lease.granted_at), `, ${it.progress} % done, token ${lease.token}`)),
      );
    }),
  );
}

/** The newest whole, the earlier ones folded. */
function handoffs(it) {
  const [newest, ...earlier] = it.handoffs;
  if (!newest) return null;
  return [handoff(newest), earlier.length ? h("details", { class: "earlier" }, h("summary", null, earlier.length === 1 ? "One earlier handoff" : `${earlier.length} earlier handoffs`), earlier.map(handoff)) : null];
}

function handoff(it) {
  const git = it.git ?? {};
  const row = (name, value) => value && h("div", { class: "fact" }, h("dt", null, name), h("dd", null, value));
  return h(
    "section",
    { class: "panel handoff-panel" },
    h("h2", null, icon("handoff"), "Handoff from ", it.recovered_from_agent),
    h(
      "dl",
      { class: "facts" },
      row("Recovered", ago(it.at)),
      row("Because", (it.recovery_reason ?? "").replaceAll("_", " ")),
      row("Progress", `${it.previous_progress} %`),
      row("Time spent", `${it.time_spent_minutes} min`),
      row("Merge", git.merge && h("span", { class: `tag ${git.merge === "clean" ? "good" : "warn"}` }, git.merge)),
      row("Valid until", ago(it.expires_at)),
    ),
    h(
      "dl",
      { class: "facts long" },
      row("How it ended", it.exited),
      row("Branch", it.previous_agent_branch && h("code", null, it.previous_agent_branch)),
      row("Uncommitted work saved in", git.rescue_ref && [h("code", null, git.rescue_ref), git.rescue_files ? ` ${git.rescue_files} ${git.rescue_files === 1 ? "file" : "files"}` : null]),
    ),
    it.last_message && quoted("Last words", it.last_message),
    git.commits?.length ? quoted(`Commits not merged${git.base ? ` into ${git.base}` : ""}`, [...git.commits, ...(git.ahead > git.commits.length ? [`and ${git.ahead - git.commits.length} older ones`] : [])].join("\n")) : null,
    git.diffstat && quoted("They change", git.diffstat),
    git.conflicts?.length ? quoted("The merge would conflict in", git.conflicts.join("\n")) : null,
    git.rescue_apply && quoted("To bring the uncommitted work in", git.rescue_apply),
    git.not_saved?.length ? quoted(`Not saved${it.worktree ? `, still in ${it.worktree}` : ""}`, git.not_saved.join("\n")) : null,
    it.decisions.length ? quoted("Decisions", it.decisions.map((one) => one.decision ?? one).join("\n")) : null,
    it.artifacts.length ? quoted("Artifacts", it.artifacts.map((one) => [one.filename ?? one, one.location, one.description].filter(Boolean).join(": ")).join("\n")) : null,
    (it.output_tail || git.output_tail) && quoted("Last output", it.output_tail || git.output_tail),
    git.note && h("p", { class: "muted" }, git.note),
    it.pending && h("p", { class: "muted" }, "What git shows of it is still pending: nobody on that machine has looked yet."),
  );
}

function quoted(title, text) {
  return h("div", { class: "quoted" }, h("h3", null, title), h("pre", { class: "code", tabindex: 0 }, text));
}

function instructions(it) {
  return panel("Instructions, as the next holder gets them", h("pre", { class: "instructions", tabindex: 0 }, it.instructions));
}

function messages(it) {
  const written = it.messages.filter((message) => message.kind !== "handoff");
  return written.length
    ? h("ol", { class: "thread" }, written.map((message) => h("li", null, h("div", { class: "event-head" }, who(message.from), ago(message.at)), h("p", { class: "message" }, message.text))))
    : h("p", { class: "muted" }, "Nobody has written yet. The next holder reads what you write here.");
}

/** The form is made once, so that a change of the task does not take away what is being typed. */
function compose(taskId, written) {
  const text = h("textarea", { id: "message-text", rows: 2, maxlength: 100_000, placeholder: "Write to whoever works on this" });
  const name = h("input", { id: "message-name", maxlength: 128, value: mayAct() ? person() : state.speaksFor, autocomplete: "name", disabled: !mayAct() });
  const send = async (event) => {
    event.preventDefault();
    if (!text.value.trim()) return;
    if (mayAct()) localStorage.setItem("tenure-name", name.value.trim());
    try {
      await act("message", { project: state.project, task_id: taskId, text: text.value, by: person() });
      text.value = "";
      written();
    } catch (error) {
      complain(error);
    }
  };
  text.addEventListener("keydown", (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && send(event));
  return h("form", { class: "composer", onsubmit: send }, h("label", { class: "sr", for: "message-text" }, "Message"), text, h("div", { class: "composer-foot" }, h("label", { for: "message-name" }, "as"), name, h("button", { class: "button primary" }, "Send")));
}

function receipts(it) {
  if (!it.receipts.length) return panel("Receipts", h("p", { class: "muted" }, "None yet: the first acceptance writes the first."));
  const whole = !it.verified.faults.length;
  return h(
    "section",
    { class: "panel" },
    h("h2", null, "Receipts", h("span", { class: `tag ${whole ? "good" : "bad"}` }, icon(whole ? "check" : "close", 12), whole ? `chain of ${it.verified.receipts} verified` : "chain broken")),
    it.verified.faults.map((fault) => h("p", { class: "bad" }, fault)),
    h(
      "ol",
      { class: "chain" },
      it.receipts.map((receipt) =>
        h(
          "li",
          { class: receipt.phase },
          h("span", { class: "mono muted" }, `#${receipt.position}`),
          h("b", null, receipt.phase),
          h("span", { class: "ellipsis" }, [receipt.status !== "NA" && receipt.status, receipt.reason !== "NA" && receipt.reason, receipt.phase === "progress" && `${receipt.progress} %`].filter(Boolean).join(" · ")),
          h("span", { class: "muted ellipsis" }, receipt.source),
          h("code", { title: `${receipt.prev_hash} → ${receipt.hash}` }, receipt.hash.slice(0, 10)),
          ago(receipt.at),
        ),
      ),
    ),
  );
}

function facts(it) {
  const row = (name, value) => value && h("div", { class: "fact" }, h("dt", null, name), h("dd", null, value));
  return h(
    "section",
    { class: "panel" },
    h("h2", null, "Facts"),
    h(
      "dl",
      { class: "facts narrow" },
      row("Priority", h("span", { class: "who" }, priority(it.priority), it.priority)),
      row("Kind", it.kind),
      row("Complexity", it.complexity !== "none" && it.complexity),
      row("Requires", it.requires.join(", ")),
      row("Progress", it.progress ? `${it.progress} %` : ""),
      row("Attempts", it.attempts ? `${it.attempts}${it.max_attempts ? ` of ${it.max_attempts}` : ""}` : ""),
      row("Blocked by", it.blocked_reason),
      row("Obligation", it.obligation !== "none" && it.obligation),
      row("Added", ago(it.created_at)),
      row("Changed", ago(it.updated_at)),
      row("Done", it.done_at && ago(it.done_at)),
    ),
  );
}

function dependencies(it) {
  if (it.graph.nodes.length < 2) return null;
  return panel("Dependencies", h("div", { class: "scroll-x", tabindex: 0, role: "region", "aria-label": "Dependency graph" }, graph(it.graph, it.task_id)), it.graph.cut && h("p", { class: "muted" }, "More than can be shown here."));
}

function why(it) {
  if (it.status !== "todo") return null;
  const failing = it.conditions.filter((condition) => !condition.holds);
  return panel(
    failing.length ? "Why nobody gets it" : "Ready to be claimed",
    h("ul", { class: "conditions" }, it.conditions.map((condition) => h("li", { class: condition.holds ? "good" : "bad" }, icon(condition.holds ? "check" : "close", 14), h("span", null, h("b", null, condition.name.replaceAll("_", " ")), " ", condition.detail)))),
  );
}

function decisions(it) {
  if (!it.decisions.length) return null;
  return panel("Decisions", h("ol", { class: "thread" }, it.decisions.map((one) => h("li", null, h("div", { class: "event-head" }, who(one.agent_id), ago(one.at)), h("p", { class: "message" }, one.decision)))));
}

function story(it) {
  return panel("Story", h("ol", { class: "story" }, it.story.map((line) => h("li", null, h("time", { datetime: new Date(line.at).toISOString(), title: absolute(line.at) }, exact(line.at)), h("p", null, line.text)))));
}
