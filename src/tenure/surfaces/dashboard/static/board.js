// The board: columns, filters, moving cards, and beside it what happens.

import { ask } from "./dialogs.js";
import { Column } from "./column.js";
import { fill, h, icon } from "./dom.js";
import { addTask, chooseMove, meaning, move, requeue, ways } from "./moves.js";
import { firstRun } from "./start.js";
import { mayAct, state, STATUSES, subscribe } from "./state.js";
import { ago } from "./time.js";
import { address, go, here, replace } from "./url.js";

const FILTERS = ["q", "kind", "priority", "agent"];

export function board(main) {
  const columns = Object.fromEntries(STATUSES.map((status) => [status, new Column(status)]));
  const search = h("input", { id: "search", type: "search", placeholder: "Search title or id", "aria-label": "Search", autocomplete: "off", spellcheck: "false", value: here().q ?? "" });
  const selects = {
    kind: select("kind", "All kinds"),
    priority: select("priority", "All priorities", ["critical", "high", "medium", "low"]),
    agent: select("agent", "All agents"),
  };
  const clear = h("button", { type: "button", class: "button quiet", hidden: true, onclick: () => replace(Object.fromEntries(FILTERS.map((name) => [name, ""]))) }, "Clear filters");
  const figures = h("div", { class: "figures" });
  const feed = h("ol", { class: "feed", "aria-label": "What happened" });
  const area = h("div", { class: "board", role: "group", "aria-label": "Board" }, STATUSES.map((status) => columns[status].element));
  const empty = h("div", { hidden: true });
  const body = h("div", { class: "board-body" }, area, h("aside", { class: "activity", "aria-label": "Activity" }, h("h2", null, "Activity"), feed));
  fill(
    main,
    h(
      "header",
      { class: "bar" },
      h("h1", null, "Board"),
      figures,
      h("div", { class: "bar-tools" }, h("label", { class: "search" }, icon("search"), search), selects.kind, selects.priority, selects.agent, clear, mayAct() && h("button", { type: "button", class: "button primary", onclick: addTask }, icon("plus"), h("span", { class: "wide-only" }, "New task"), h("span", { class: "sr narrow-only" }, "New task"))),
    ),
    empty,
    body,
  );

  let typed = 0;
  search.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(() => replace({ q: search.value.trim() }), 120);
  });
  for (const [name, element] of Object.entries(selects)) element.addEventListener("change", () => replace({ [name]: element.value }));

  function refresh() {
    const wanted = here();
    if (document.activeElement !== search && search.value !== (wanted.q ?? "")) search.value = wanted.q ?? "";
    options(selects.kind, state.kinds, wanted.kind);
    const holders = new Set();
    for (const card of state.cards.values()) for (const lease of card.leases) holders.add(lease.agent_id);
    if (wanted.agent) holders.add(wanted.agent);
    options(selects.agent, [...holders].sort(), wanted.agent);
    selects.priority.value = wanted.priority ?? "";
    const filtered = FILTERS.some((name) => wanted[name]);
    clear.hidden = !filtered;
    const lists = sorted(filter(state.cards, wanted));
    const totals = state.numbers?.tasks ?? {};
    for (const status of STATUSES) columns[status].show(lists[status], Math.max(totals[status] ?? 0, filtered ? 0 : lists[status].length), filtered);
    const nothing = state.numbers !== null && state.cards.size === 0 && state.connection !== "loading";
    empty.hidden = !nothing;
    body.hidden = nothing;
    if (nothing && !empty.hasChildNodes()) fill(empty, firstRun());
    if (!nothing) fill(empty);
    headline(figures);
    happened(feed);
  }

  let scheduled = false;
  const later = () => {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => {
      scheduled = false;
      // Nothing moves under a card that is being dragged.
      if (area.querySelector(".is-dragged")) setTimeout(later, 200);
      else refresh();
    });
  };
  const stop = subscribe(later);
  dragging(area, columns);
  keyboard(area, columns);
  refresh();
  return {
    moved: refresh,
    tick: () => {
      for (const column of Object.values(columns)) column.tick();
    },
    stop,
  };
}

function select(name, all, choices = []) {
  return h("select", { class: "select", "aria-label": all, data: { filter: name } }, h("option", { value: "" }, all), choices.map((choice) => h("option", { value: choice }, choice)));
}

function options(element, choices, chosen) {
  const present = [...element.options].slice(1).map((option) => option.value);
  if (present.join("\n") !== choices.join("\n")) {
    const first = element.options[0];
    fill(element, first, choices.map((choice) => h("option", { value: choice }, choice)));
  }
  element.value = chosen ?? "";
}

function filter(cards, { q, kind, priority, agent }) {
  const text = q?.toLowerCase();
  const found = [];
  for (const card of cards.values()) {
    if (kind && card.kind !== kind) continue;
    if (priority && card.priority !== priority) continue;
    if (agent && card.assigned_to !== agent && !card.leases.some((lease) => lease.agent_id === agent)) continue;
    if (text && !card.title.toLowerCase().includes(text) && !card.task_id.toLowerCase().includes(text)) continue;
    found.push(card);
  }
  return found;
}

/** What is due first, then what is soonest to lapse, then the queue's own order; of the done, the newest. */
function sorted(cards) {
  const lists = Object.fromEntries(STATUSES.map((status) => [status, []]));
  for (const card of cards) lists[card.status].push(card);
  const queue = (a, b) => b.due - a.due || Boolean(a.unmet || a.waits_until) - Boolean(b.unmet || b.waits_until) || a.rank - b.rank || (a.task_id < b.task_id ? -1 : 1);
  for (const status of STATUSES) lists[status].sort(queue);
  lists.in_progress.sort((a, b) => lapse(a) - lapse(b) || queue(a, b));
  lists.done.sort((a, b) => (b.done_at ?? 0) - (a.done_at ?? 0));
  return lists;
}

const lapse = (card) => (card.leases.length ? card.leases[0].granted_at : Infinity);

function headline(element) {
  const numbers = state.numbers;
  if (!numbers) return;
  const told = [
    [numbers.active, "held", ""],
    [numbers.expiring_soon, "expiring soon", "warn"],
    [numbers.due, "due", "bad"],
    [numbers.stuck, "stuck", "warn"],
    [numbers.recoveries, numbers.recoveries === 1 ? "recovery" : "recoveries", ""],
  ].filter(([value], index) => value || index === 0);
  fill(element, told.map(([value, name, kind]) => h("span", { class: `figure ${kind}` }, h("b", null, value), " ", name)));
}

const MARKED = { recovered: "bad", died: "bad", failed: "bad", completed: "good", returned: "warn", healed: "warn", revoked: "warn", blocked: "warn", escalated: "warn", granted: "", accepted: "" };

function happened(feed) {
  const events = state.events.slice(-60).reverse();
  const known = new Map([...feed.children].map((child) => [Number(child.dataset.seq), child]));
  fill(feed, events.map((event) => known.get(event.seq) ?? line(event)));
  if (!events.length) fill(feed, h("li", { class: "muted" }, "Nothing has happened yet."));
}

function line(event) {
  return h(
    "li",
    { class: `event ${MARKED[event.kind] ?? ""}`, data: { seq: event.seq, kind: event.kind } },
    h("div", { class: "event-head" }, event.task_id ? h("a", { href: address({ task: event.task_id }) }, event.task_id) : h("span", { class: "muted" }, event.agent_id ?? "server"), ago(event.at)),
    h("p", null, event.text),
  );
}

function dragging(area, columns) {
  let dragged = null;
  const over = (event) => event.target.closest?.(".column");
  area.addEventListener("dragstart", (event) => {
    const element = event.target.closest?.(".card");
    if (!element) return;
    dragged = state.cards.get(element.dataset.id);
    event.dataTransfer.effectAllowed = "move";
    event.dataTransfer.setData("text/plain", dragged.task_id);
    element.classList.add("is-dragged");
    for (const status of STATUSES) {
      const way = ways(dragged).includes(status);
      columns[status].element.classList.toggle("is-target", way);
      columns[status].element.classList.toggle("is-closed", !way && status !== dragged.status);
      if (way) columns[status].element.dataset.means = meaning(dragged, status);
    }
  });
  area.addEventListener("dragover", (event) => {
    const column = over(event);
    if (!dragged || !column || !ways(dragged).includes(column.dataset.status)) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = "move";
    column.classList.add("is-over");
  });
  area.addEventListener("dragleave", (event) => {
    const column = over(event);
    if (column && !column.contains(event.relatedTarget)) column.classList.remove("is-over");
  });
  area.addEventListener("drop", (event) => {
    const column = over(event);
    if (!dragged || !column) return;
    event.preventDefault();
    const card = state.cards.get(dragged.task_id) ?? dragged;
    if (column.dataset.status !== card.status) move(card, column.dataset.status);
  });
  area.addEventListener("dragend", () => {
    dragged = null;
    for (const element of area.querySelectorAll(".is-dragged, .is-target, .is-closed, .is-over")) element.classList.remove("is-dragged", "is-target", "is-closed", "is-over");
  });
  area.addEventListener("click", (event) => {
    const element = event.target.closest?.(".card");
    if (element && event.target.closest(".card-move")) chooseMove(state.cards.get(element.dataset.id));
    else if (element && !event.target.closest("a")) go(address({ task: element.dataset.id }));
  });
}

function keyboard(area, columns) {
  area.addEventListener("keydown", (event) => {
    const element = event.target.closest?.(".card");
    if (!element || event.metaKey || event.ctrlKey || event.altKey) return;
    const card = state.cards.get(element.dataset.id);
    const column = columns[card?.status];
    if (!column) return;
    const index = column.tasks.findIndex((task) => task.task_id === card.task_id);
    const acts = {
      ArrowDown: () => column.focus(index + 1),
      ArrowUp: () => column.focus(index - 1),
      Home: () => column.focus(0),
      End: () => column.focus(column.tasks.length - 1),
      ArrowLeft: () => beside(columns, card.status, -1),
      ArrowRight: () => beside(columns, card.status, 1),
      Enter: () => go(address({ task: card.task_id })),
      m: () => chooseMove(card),
      r: () => requeue(card),
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  });
}

function beside(columns, status, step) {
  for (let index = STATUSES.indexOf(status) + step; STATUSES[index]; index += step) if (columns[STATUSES[index]].focus(columns[STATUSES[index]].focused)) return;
}

export function shortcuts() {
  const rows = [
    ["/", "search"],
    ["b  f  o", "board, fleet, operations"],
    ["n", "new task"],
    ["← ↑ → ↓", "from card to card"],
    ["Enter", "open the card"],
    ["m", "move the card"],
    ["r", "requeue the card"],
    ["?", "this list"],
  ];
  return ask("Keys", () => h("dl", { class: "dialog-body keys" }, rows.map(([key, what]) => [h("dt", null, key.split("  ").map((one) => h("kbd", null, one))), h("dd", null, what)])));
}
