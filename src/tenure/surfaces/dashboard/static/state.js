// What the server has told, and nothing else. Views read from here and are told when it changes.

import { get, Problem } from "./net.js";
import { freeze, heard } from "./time.js";

export const STATUSES = ["todo", "in_progress", "blocked", "done", "dead"];
export const NAMES = { todo: "To do", in_progress: "In progress", blocked: "Blocked", done: "Done", dead: "Dead" };
const EVENTS_KEPT = 200;
// The server says something every three seconds; silence for longer than this is a lost connection.
const SILENCE_MS = 9_000;

export const state = {
  project: "default",
  cards: new Map(),
  kinds: [],
  numbers: null,
  events: [],
  // Where to go on from, as the server wrote it: on PostgreSQL it may be longer than a number here is exact.
  cursor: null,
  // loading, live, lost, signed-out, refused
  connection: "loading",
  problem: null,
  heardAt: null,
  speaksFor: "*",
  needsToken: false,
  // Grows with each change, so that a view can tell whether it is up to date.
  version: 0,
};

/** Whether this visitor may do more than write messages: a token of an agent may not. */
export const mayAct = () => state.speaksFor === "*";

const listeners = new Set();
let source = null;
let silence = 0;
let retry = 0;
let attempts = 0;

/** Be told of changes: {cards: Set of ids, or null for all of them; events: new ones}. Returns how to stop. */
export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tell(change) {
  state.version += 1;
  for (const listener of listeners) listener(change);
}

function connection(name, problem = null) {
  state.connection = name;
  state.problem = problem;
  if (name !== "live") freeze();
  tell({ cards: new Set(), events: [], connection: true });
}

/** Look at a project: everything once, then what changes. */
export async function open(project) {
  close();
  state.project = project;
  state.cursor = null;
  await load();
}

export function close() {
  source?.close();
  source = null;
  clearTimeout(silence);
  clearTimeout(retry);
}

async function load() {
  try {
    const board = await get("/dashboard/board", { project: state.project });
    heard(board.now);
    state.cards = new Map(board.cards.map((card) => [card.task_id, card]));
    state.kinds = board.kinds;
    state.numbers = board.numbers;
    state.events = board.events;
    state.cursor = board.cursor;
    attempts = 0;
    tell({ cards: null, events: [] });
    follow();
  } catch (error) {
    failed(error);
  }
}

function failed(error) {
  if (error instanceof Problem && error.status === 401) return connection("signed-out");
  if (error instanceof Problem && error.status < 500) return connection("refused", error);
  again();
}

function again() {
  close();
  connection("lost");
  attempts += 1;
  const wait = Math.min(5_000, 250 * 2 ** Math.min(attempts, 5)) * (0.75 + Math.random() / 2);
  retry = setTimeout(() => (state.cursor === null ? load() : follow()), wait);
}

function follow() {
  source?.close();
  const query = new URLSearchParams({ project: state.project, after: state.cursor });
  source = new EventSource(`/dashboard/stream?${query}`);
  listen();
  source.addEventListener("hello", (message) => {
    const told = JSON.parse(message.data);
    attempts = 0;
    alive(told.now);
    state.numbers = told.numbers;
    const moved = deadlines(told.leases);
    state.connection = "live";
    tell({ cards: moved, events: [], connection: true });
  });
  source.addEventListener("changes", (message) => {
    const told = JSON.parse(message.data);
    alive(told.now);
    state.cursor = message.lastEventId;
    apply(told);
  });
  source.addEventListener("reset", () => {
    close();
    load();
  });
  source.onerror = () => {
    // The browser would try again by itself, but not after every kind of failure, and without saying so.
    close();
    get("/dashboard/session")
      .then((session) => (session.needed && !session.speaks_for ? connection("signed-out") : again()))
      .catch(again);
  };
}

function listen() {
  clearTimeout(silence);
  silence = setTimeout(again, SILENCE_MS);
}

function alive(now) {
  heard(now);
  state.heardAt = now;
  listen();
}

function apply(told) {
  const changed = new Set();
  for (const card of told.cards) {
    state.cards.set(card.task_id, card);
    changed.add(card.task_id);
    if (card.kind && !state.kinds.includes(card.kind)) state.kinds = [...state.kinds, card.kind].sort();
  }
  for (const id of told.gone) {
    state.cards.delete(id);
    changed.add(id);
  }
  for (const id of deadlines(told.leases)) changed.add(id);
  // A message may be told twice around a reconnection; an event is shown once.
  const shown = new Set(state.events.map((event) => event.seq));
  const events = told.events.filter((event) => !shown.has(event.seq));
  state.events = [...state.events, ...events].slice(-EVENTS_KEPT);
  state.numbers = told.numbers;
  tell({ cards: changed, events });
}

/** Rows as the server's shapes.deadline makes them. The ids of the cards that moved. */
function deadlines(rows) {
  const moved = new Set();
  for (const [leaseId, taskId, seen, expires, recover, grace, extension, progress, phase, died] of rows) {
    const card = state.cards.get(taskId);
    const held = card?.leases.find((lease) => lease.lease_id === leaseId);
    if (!held) continue;
    const lease = { ...held, seen_at: seen, expires_at: expires, recover_at: recover, grace_ms: grace, extension, progress, phase, died_at: died };
    state.cards.set(taskId, { ...card, leases: card.leases.map((one) => (one.lease_id === leaseId ? lease : one)) });
    moved.add(taskId);
  }
  return moved;
}
