// Operations: how much gets done, what waits, what was lost, and what waits for a person.

import { complain, toast } from "./dialogs.js";
import { fill, h, icon, s } from "./dom.js";
import { requeue } from "./moves.js";
import { act, get } from "./net.js";
import { mayAct, NAMES, state, STATUSES, subscribe } from "./state.js";
import { ago, clock, duration, now } from "./time.js";
import { address, here, replace } from "./url.js";

const PERIODS = [
  [60, "1 h"],
  [360, "6 h"],
  [1440, "24 h"],
  [10_080, "7 d"],
];

export function operations(main) {
  const body = h("div", { class: "page" });
  const periods = h("div", { class: "zoom", role: "group", "aria-label": "Period" });
  fill(main, h("header", { class: "bar" }, h("h1", null, "Operations"), h("div", { class: "bar-tools" }, periods)), body);
  let timer = 0;
  let stopped = false;

  async function load() {
    clearTimeout(timer);
    const minutes = Number(here().minutes) || 60;
    fill(periods, PERIODS.map(([value, text]) => h("button", { type: "button", "aria-pressed": String(value === minutes), onclick: () => replace({ minutes: value === 60 ? "" : String(value) }) }, text)));
    try {
      const seen = await get("/dashboard/numbers", { project: state.project, minutes });
      if (!stopped) draw(body, seen, load);
    } catch (error) {
      if (state.connection === "live") fill(body, h("p", { class: "bad" }, error.message));
    }
    if (!stopped) timer = setTimeout(load, 15_000);
  }

  let waiting = 0;
  const stop = subscribe((change) => {
    if (change.cards !== null && !change.events.length) return;
    waiting ||= setTimeout(() => {
      waiting = 0;
      load();
    }, 1_500);
  });
  load();
  return {
    moved: load,
    stop: () => {
      stopped = true;
      stop();
      clearTimeout(timer);
      clearTimeout(waiting);
    },
  };
}

function draw(body, seen, load) {
  const focused = document.activeElement?.dataset?.requeue;
  const total = (name) => seen.slices.reduce((sum, slice) => sum + slice[name], 0);
  const span = seen.slices.length * seen.slice_ms;
  const { recoveries, false_recoveries: wrong } = seen.numbers;
  const outlets = [...seen.gates.map((one) => ({ ...one, gate: true })), ...seen.boards.map((one) => ({ ...one, waiting: one.pending + one.comments }))];
  const backlog = outlets.reduce((sum, one) => sum + one.waiting, 0);
  const parked = outlets.reduce((sum, one) => sum + one.parked, 0);
  fill(
    body,
    seen.gridlock.length ? gridlock(seen) : null,
    h(
      "div",
      { class: "tiles" },
      tile("Completed", total("completed"), `in the last ${duration(span)}`, spark(seen.slices.map((slice) => slice.completed), "good")),
      tile("Ready to claim", seen.ready, seen.oldest ? ["oldest ", h("a", { href: address({ task: seen.oldest.task_id }) }, seen.oldest.task_id), " ", ago(seen.oldest.since_ms)] : "nothing waits", null, seen.oldest && now() - seen.oldest.since_ms > 3_600_000 ? "warn" : ""),
      tile("Held", seen.numbers.active, [`${seen.numbers.expiring_soon} expiring soon`, seen.numbers.stuck ? `, ${seen.numbers.stuck} stuck` : ""]),
      tile("Recoveries", total("recovered"), `${recoveries} ever`, spark(seen.slices.map((slice) => slice.recovered), "bad")),
      tile("False recoveries", recoveries ? `${Math.round((100 * wrong) / recoveries)} %` : "–", `${wrong} of ${recoveries} holders came back`, null, recoveries && wrong / recoveries > 0.2 ? "warn" : ""),
      tile("Outbox", backlog, outlets.length ? (parked ? `${parked} parked: a person should look` : "nothing parked") : "no external board or gate", null, backlog > 100 || parked ? "warn" : ""),
    ),
    h("section", { class: "panel" }, h("h2", null, "Throughput"), throughput(seen)),
    h("section", { class: "panel" }, h("h2", null, "Queue"), depth(seen.numbers.tasks)),
    h("section", { class: "panel", id: "dead-letters" }, h("h2", null, "Dead letters", seen.dead.length ? h("span", { class: "tag bad" }, seen.dead.length) : null), dead(seen.dead, load)),
    outlets.length ? h("section", { class: "panel", id: "deliveries" }, h("h2", null, "Deliveries", parked ? h("span", { class: "tag bad" }, `${parked} parked`) : null), deliveries(outlets, load)) : null,
    h("section", { class: "panel" }, h("h2", null, "Monitors"), monitors(seen)),
  );
  if (focused) body.querySelector(`[data-requeue="${CSS.escape(focused)}"]`)?.focus();
}

function gridlock(seen) {
  return h("section", { class: `banner ${seen.gridlocked ? "bad" : "warn"}`, role: "alert" }, h("h2", null, seen.gridlocked ? "Gridlock: nothing can move without a person" : "Some tasks cannot move without a person"), h("ul", null, seen.gridlock.map((sentence) => h("li", null, sentence))));
}

function tile(name, value, note, extra = null, kind = "") {
  return h("div", { class: `tile ${kind}` }, h("h3", null, name), h("p", { class: "tile-value" }, value), h("p", { class: "tile-note" }, note), extra);
}

function spark(values, kind) {
  const most = Math.max(1, ...values);
  const step = 100 / Math.max(1, values.length - 1);
  const points = values.map((value, index) => `${(index * step).toFixed(1)} ${(26 - (value / most) * 24).toFixed(1)}`);
  return s("svg", { class: `spark ${kind}`, viewBox: "0 0 100 28", preserveAspectRatio: "none", "aria-hidden": "true" }, s("path", { class: "spark-area", d: `M0 28L${points.join("L")}L100 28Z` }), s("path", { class: "spark-line", d: `M${points.join("L")}` }));
}

function throughput(seen) {
  const width = 960;
  const height = 170;
  const most = Math.max(4, ...seen.slices.map((slice) => slice.completed + slice.recovered + slice.failed));
  const step = width / seen.slices.length;
  const y = (value) => height - (value / most) * height;
  const rungs = [0, Math.round(most / 2), most];
  const every = Math.ceil(seen.slices.length / 8);
  const parts = ["completed", "failed", "recovered"];
  return h(
    "div",
    null,
    s(
      "svg",
      { class: "bars", viewBox: `-34 -8 ${width + 40} ${height + 32}`, role: "img", "aria-label": `Completed, failed and recovered tasks in slices of ${duration(seen.slice_ms)}` },
      rungs.map((value) => s("g", { class: "rung" }, s("line", { x1: 0, x2: width, y1: y(value), y2: y(value) }), s("text", { x: -8, y: y(value) + 4 }, value))),
      seen.slices.map((slice, index) => {
        let base = 0;
        const drawn = parts.map((name) => {
          const from = base;
          base += slice[name];
          return slice[name] ? s("rect", { class: `bar-${name}`, x: index * step + step * 0.12, width: step * 0.76, y: y(base), height: y(from) - y(base), rx: 1.5 }) : null;
        });
        return s("g", null, s("title", null, `${clock(slice.at_ms)}: ${slice.completed} completed, ${slice.failed} failed, ${slice.recovered} recovered, ${slice.granted} begun`), s("rect", { class: "bar-hit", x: index * step, width: step, y: 0, height }), drawn, index % every === 0 ? s("text", { class: "bar-time", x: index * step, y: height + 18 }, clock(slice.at_ms)) : null);
      }),
    ),
    h("div", { class: "legends" }, ["completed", "failed", "recovered"].map((name) => h("span", { class: `legend b-${name}` }, h("i", { "aria-hidden": "true" }), name))),
  );
}

function depth(tasks) {
  const total = Math.max(1, STATUSES.reduce((sum, status) => sum + tasks[status], 0));
  return h(
    "div",
    { class: "depth" },
    h("div", { class: "depth-bar", "aria-hidden": "true" }, STATUSES.map((status) => tasks[status] > 0 && h("span", { class: `fill-${status}`, style: { flexGrow: String(Math.max(tasks[status] / total, 0.01)) } }))),
    h("dl", { class: "depth-list" }, STATUSES.map((status) => h("div", null, h("dt", null, h("span", { class: `dot ${status}` }), NAMES[status]), h("dd", null, tasks[status])))),
  );
}

function dead(tasks, load) {
  if (!tasks.length) return h("p", { class: "muted" }, "None. A task lands here when all its attempts are used or its holder cancels it.");
  return h(
    "div",
    { class: "scroll-x", tabindex: 0, role: "region", "aria-label": "Dead letters" },
    h(
      "table",
      { class: "table" },
      h("thead", null, h("tr", null, ["Task", "Title", "Attempts", "Since", ""].map((name) => h("th", { scope: "col" }, name || h("span", { class: "sr" }, "What to do"))))),
      h(
        "tbody",
        null,
        tasks.map((task) =>
          h(
            "tr",
            null,
            h("td", null, h("a", { class: "mono", href: address({ task: task.task_id }) }, task.task_id)),
            h("td", { class: "cell-wide" }, task.title, task.blocked_reason && h("small", { class: "muted" }, task.blocked_reason)),
            h("td", { class: "num" }, task.attempts),
            h("td", null, ago(task.updated_at)),
            h("td", null, mayAct() && h("button", { type: "button", class: "button", data: { requeue: task.task_id }, "aria-label": `Requeue ${task.task_id}`, onclick: () => requeue(task).then(load) }, icon("retry", 14), "Requeue")),
          ),
        ),
      ),
    ),
  );
}

/** What boards and gates have not been told yet, and what they would not take. */
function deliveries(outlets, load) {
  const again = (one) => act(one.gate ? "resend" : "retry", { project: state.project }).then(() => (toast(one.gate ? "Parked receipts are sent again" : "Parked writes are tried again"), load()), complain);
  return [
    h(
      "div",
      { class: "scroll-x", tabindex: 0, role: "region", "aria-label": "Deliveries" },
      h(
        "table",
        { class: "table" },
        h("thead", null, h("tr", null, ["To", "Waiting", "Parked", "Last looked", "Trouble"].map((name) => h("th", { scope: "col" }, name)))),
        h(
          "tbody",
          null,
          outlets.map((one) =>
            h(
              "tr",
              null,
              h("td", null, one.name),
              h("td", { class: "num", title: one.comments === undefined ? null : `${one.pending} cards, ${one.comments} comments` }, one.waiting),
              h("td", { class: "num" }, one.parked),
              h("td", null, one.swept_at ? ago(one.swept_at) : "–"),
              h("td", { class: "cell-wide" }, one.error ? h("span", { class: "bad" }, one.error) : "–"),
            ),
          ),
        ),
      ),
    ),
    outlets.filter((one) => one.parked_writes?.length).map((one) => [
      h("ul", { class: "parked" }, one.parked_writes.map((text) => h("li", null, text))),
      mayAct() && h("p", null, h("button", { type: "button", class: "button", data: { requeue: `parked writes of ${one.name}` }, onclick: () => again(one) }, icon("retry", 14), one.gate ? "Send parked receipts again" : "Try parked writes again")),
    ]),
  ];
}

function monitors(seen) {
  const row = (one) =>
    h(
      "tr",
      null,
      h("td", null, one.name, one.last_error && h("small", { class: "bad" }, ` ${one.last_error}`)),
      h("td", { class: "num" }, one.ticks),
      h("td", { class: "num" }, one.failures),
      h("td", null, one.last_tick_age_s === null ? "–" : `${duration(one.last_tick_age_s * 1000)} ago`),
      h("td", null, one.next_wake_in_s === null ? "–" : `in ${duration(one.next_wake_in_s * 1000)}`),
    );
  const head = ["Monitor", "Ticks", "Failures", "Last tick", "Next"].map((name) => h("th", { scope: "col" }, name));
  return h("div", { class: "scroll-x", tabindex: 0, role: "region", "aria-label": "Monitors" }, h("table", { class: "table" }, h("thead", null, h("tr", null, head)), h("tbody", null, seen.monitors.map(row))));
}
