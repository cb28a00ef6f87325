// The shell: navigation, connection, keys, and which view is shown.

import { agent } from "./agent.js";
import { board, shortcuts } from "./board.js";
import { fill, h, icon, s, say } from "./dom.js";
import { fleet } from "./fleet.js";
import { addTask } from "./moves.js";
import { get, signIn, signOut } from "./net.js";
import { operations } from "./operations.js";
import { open, state, subscribe } from "./state.js";
import { task } from "./task.js";
import { exact, refreshTimes } from "./time.js";
import { address, go, here, onMove } from "./url.js";

const VIEWS = { board, fleet, operations };
const main = document.getElementById("main");
const notice = document.getElementById("notice");
let view = null;
let shown = "";
let projects = [];

function wanted() {
  const { view: name, task: taskId, agent: agentId } = here();
  if (taskId) return { key: `task ${taskId}`, make: () => task(main, taskId), name: "board", title: taskId };
  if (name === "agent" && agentId) return { key: `agent ${agentId}`, make: () => agent(main, agentId), name: "fleet", title: agentId };
  const known = VIEWS[name] ? name : "board";
  return { key: known, make: () => VIEWS[known](main), name: known, title: known[0].toUpperCase() + known.slice(1) };
}

function show() {
  const project = here().project || "default";
  if (state.connection === "signed-out") return;
  if (project !== state.project || state.connection === "loading") {
    leave();
    open(project);
  }
  const next = wanted();
  const key = `${project} ${next.key}`;
  if (key === shown) return view?.moved?.();
  leave();
  shown = key;
  main.className = `view-${next.key.split(" ")[0]}`;
  document.title = `${next.title} · Tenure`;
  view = next.make();
  navigation(next.name);
  main.scrollTop = 0;
}

function leave() {
  view?.stop?.();
  view = null;
  shown = "";
}

// -- navigation -------------------------------------------------------------------------------------------------------

const nav = document.getElementById("nav");
const signal = h("span", { class: "signal" });

function navigation(current) {
  const entry = (name, text, picture) =>
    h("a", { class: "nav-link", href: address({ view: name === "board" ? "" : name }), "aria-current": name === current ? "page" : null, title: text }, icon(picture, 18), h("span", null, text));
  const chosen = here().project || "default";
  const known = projects.some((one) => one.project_id === chosen) ? projects : [...projects, { project_id: chosen, name: chosen }];
  fill(
    nav,
    h("a", { class: "brand", href: address({}), title: "Tenure" }, logo(), h("span", null, "Tenure")),
    known.length > 1 &&
      h(
        "select",
        { class: "select nav-project", "aria-label": "Project", onchange: (event) => go(event.target.value === "default" ? "/" : `/?project=${encodeURIComponent(event.target.value)}`) },
        known.map((one) => h("option", { value: one.project_id, selected: one.project_id === chosen }, one.name)),
      ),
    h("div", { class: "nav-links" }, entry("board", "Board", "board"), entry("fleet", "Fleet", "fleet"), entry("operations", "Operations", "pulse")),
    h(
      "div",
      { class: "nav-foot" },
      h("button", { type: "button", class: "nav-link", onclick: theme, title: "Light or dark" }, icon("moon", 18), h("span", null, "Theme")),
      h("button", { type: "button", class: "nav-link", onclick: shortcuts, title: "Keys" }, icon("keys", 18), h("span", null, "Keys")),
      state.needsToken && h("button", { type: "button", class: "nav-link", onclick: leaveServer, title: "Sign out" }, icon("gone", 18), h("span", null, "Sign out")),
      signal,
    ),
  );
  connected();
}

function logo() {
  return s("svg", { class: "logo", width: 24, height: 24, viewBox: "0 0 32 32", "aria-hidden": "true" }, s("circle", { cx: 16, cy: 16, r: 11, class: "logo-track" }), s("path", { d: "M16 5a11 11 0 1 1-9.53 5.5", class: "logo-arc" }));
}

function theme() {
  const dark = document.documentElement.dataset.theme === "dark" || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  const chosen = dark ? "light" : "dark";
  document.documentElement.dataset.theme = chosen;
  localStorage.setItem("tenure-theme", chosen);
}

// -- connection -------------------------------------------------------------------------------------------------------

function connected() {
  const live = state.connection === "live";
  document.body.dataset.connection = state.connection;
  signal.className = `signal ${state.connection}`;
  say(signal, live ? "Live" : state.connection === "lost" ? "Offline" : state.connection === "loading" ? "Connecting" : "");
  const since = state.heardAt ? ` What you see is as of ${exact(state.heardAt)}.` : "";
  if (state.connection === "lost") {
    notice.hidden = false;
    say(notice, `The connection to the server is lost; trying again.${since}`);
  } else if (state.connection === "refused") {
    notice.hidden = false;
    say(notice, `${state.problem.message} ${state.problem.next}`);
  } else notice.hidden = true;
  if (state.connection === "signed-out") showSignIn();
}

function showSignIn() {
  if (shown === "sign-in") return;
  leave();
  shown = "sign-in";
  state.needsToken = true;
  const token = h("input", { id: "token", type: "password", autocomplete: "current-password", required: true });
  const wrong = h("p", { class: "bad", role: "alert" });
  const enter = async (event) => {
    event.preventDefault();
    try {
      const session = await signIn(token.value.trim());
      state.speaksFor = session.speaks_for;
      state.connection = "loading";
      shown = "";
      start();
    } catch (error) {
      say(wrong, error.message);
      token.select();
    }
  };
  fill(nav);
  main.className = "view-sign-in";
  fill(
    main,
    h(
      "form",
      { class: "sign-in", onsubmit: enter },
      logo(),
      h("h1", null, "Tenure"),
      h("p", { class: "muted" }, "This server wants a token. It is kept as a session cookie that scripts cannot read, for twelve hours."),
      h("label", { for: "token" }, "Token"),
      token,
      wrong,
      h("button", { class: "button primary" }, "Sign in"),
    ),
  );
  token.focus();
}

async function leaveServer() {
  await signOut().catch(() => {});
  location.assign("/");
}

// -- keys -------------------------------------------------------------------------------------------------------------

const KEYS = {
  "/": () => document.getElementById("search")?.focus(),
  b: () => go(address({})),
  f: () => go(address({ view: "fleet" })),
  o: () => go(address({ view: "operations" })),
  n: addTask,
  "?": shortcuts,
};

addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, dialog");
  if (event.key === "Escape" && event.target.id === "search") event.target.blur();
  if (typing || event.metaKey || event.ctrlKey || event.altKey || event.defaultPrevented || !KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key]();
});

// -- start ------------------------------------------------------------------------------------------------------------

async function start() {
  try {
    const session = await get("/dashboard/session");
    state.needsToken = session.needed;
    state.speaksFor = session.speaks_for;
    if (session.needed && !session.speaks_for) {
      state.connection = "signed-out";
      return connected();
    }
    projects = (await get("/dashboard/projects")).projects;
  } catch {
    // The board's own attempt shows what is wrong and goes on trying.
  }
  show();
}

const chosenTheme = localStorage.getItem("tenure-theme");
if (chosenTheme) document.documentElement.dataset.theme = chosenTheme;
subscribe((change) => change.connection && connected());
onMove(show);
setInterval(refreshTimes, 1_000);
setInterval(() => document.visibilityState === "visible" && view?.tick?.(), 250);
start();
