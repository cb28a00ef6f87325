// The fleet: who is there, how it does, and its leases in time.

import { complain } from "./dialogs.js";
import { fill, h, icon, s } from "./dom.js";
import { get } from "./net.js";
import { who } from "./card.js";
import { Scale, SPANS } from "./scale.js";
import { state, subscribe } from "./state.js";
import { axis, bars, explain, grid, legend } from "./timeline.js";
import { ago, correct, now } from "./time.js";
import { address, here, replace } from "./url.js";

const ROW = 52;
const LINKS = { linked: ["link", "linked: someone sees its process"], unlinked: ["unlink", "unlinked: only its own calls prove it alive"], departed: ["gone", "departed"] };

/** How an agent is connected, by icon, word and colour. */
export function linkState(member) {
  const [picture, meaning] = LINKS[member.link];
  return h("span", { class: `link-state ${member.link}`, title: meaning }, icon(picture, 14), member.link);
}

/** An agent by the name that it gave itself, with its id where that is another. */
export function named(member) {
  const name = member.name && member.name !== member.agent_id ? member.name : "";
  return name ? [who(name), h("span", { class: "mono muted agent-id" }, member.agent_id)] : who(member.agent_id);
}

export function health(score) {
  if (score === null) return h("span", { class: "muted", title: "None of its leases has ended yet" }, "–");
  const level = score >= 80 ? "good" : score >= 50 ? "warn" : "bad";
  return h("span", { class: `health ${level}`, title: `${score} of 100: how its last leases ended` }, h("span", { class: "health-bar", "aria-hidden": "true" }, h("i", { style: { width: `${score}%` } })), h("b", null, score));
}

export function zoomBar(scale) {
  const bar = h("div", { class: "zoom", role: "group", "aria-label": "Time shown" });
  const draw = () =>
    fill(
      bar,
      SPANS.map(([span, text]) => h("button", { type: "button", "aria-pressed": String(scale.span === span), onclick: () => scale.set(span) }, text)),
      h("button", { type: "button", "aria-label": "Zoom in", onclick: () => scale.zoom(0.5, scale.width / 2) }, "+"),
      h("button", { type: "button", "aria-label": "Zoom out", onclick: () => scale.zoom(2, scale.width / 2) }, "−"),
      h("button", { type: "button", disabled: scale.pinned === null, onclick: () => scale.follow() }, "Now"),
    );
  draw();
  return { element: bar, draw };
}

export function fleet(main) {
  const scale = new Scale(Number(here().span) || SPANS[1][0]);
  const zoom = zoomBar(scale);
  const list = h("div", { class: "fleet-rows", role: "list", "aria-label": "Agents" });
  const head = s("svg", { class: "axis", height: 24, "aria-hidden": "true" });
  const table = h("div", { class: "fleet" }, h("div", { class: "fleet-head" }, h("span", null, "Agent"), h("span", null, "Last sign"), h("span", null, "Task"), h("span", null, "Health"), head), list);
  const count = h("span", { class: "figures" });
  fill(main, h("header", { class: "bar" }, h("h1", null, "Fleet"), count, h("div", { class: "bar-tools" }, zoom.element)), h("div", { class: "page" }, table, legend()));
  let members = [];
  let more = false;
  let rows = [];
  let asked = false;
  let again = false;

  async function load() {
    if (asked) {
      again = true;
      return;
    }
    asked = true;
    try {
      const seen = await get("/dashboard/agents", { project: state.project });
      correct(seen.now);
      members = seen.members;
      more = seen.next_after !== null;
      members.sort((a, b) => rank(a) - rank(b) || b.seen_at - a.seen_at);
      build();
    } catch (error) {
      if (state.connection === "live") complain(error);
    }
    asked = false;
    if (again) {
      again = false;
      setTimeout(load, 1_000);
    }
  }

  function build() {
    const present = members.filter((member) => member.link !== "departed");
    fill(count, h("span", { class: "figure" }, h("b", null, present.length), " present"), h("span", { class: "figure" }, h("b", null, members.filter((member) => member.link === "linked").length), " linked"));
    rows = members.map((member) => ({ member, svg: s("svg", { class: "lane", height: ROW, role: "group", "aria-label": `Leases of ${member.agent_id}` }) }));
    fill(list, rows.map(({ member, svg }) => row(member, svg)), more && h("p", { class: "column-note" }, `Only the first ${members.length} agents, by id, are shown.`));
    if (!members.length) fill(list, h("div", { class: "empty" }, h("h2", null, "Nobody is here yet"), h("p", { class: "muted" }, "Agents appear when they register or claim their first task."), h("pre", { class: "code" }, "tenure agent join --name claude-1\ntenure task claim --next")));
    draw();
  }

  function draw() {
    scale.width = Math.max(120, rows[0]?.svg.clientWidth || head.clientWidth || 600);
    fill(head, axis(scale, 24));
    head.setAttribute("width", scale.width);
    for (const { member, svg } of rows) {
      const focused = svg.contains(document.activeElement) ? document.activeElement.dataset.lease : null;
      fill(svg, grid(scale, ROW), s("line", { class: "now", x1: scale.x(now()), x2: scale.x(now()), y1: 0, y2: ROW }), bars(scale, member, { height: ROW }));
      if (focused) svg.querySelector(`[data-lease="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    }
  }

  scale.changed = () => {
    zoom.draw();
    replace({ span: scale.span === SPANS[1][0] ? "" : String(Math.round(scale.span)) });
    draw();
  };
  scale.attach(list);
  const tip = explain(list, ".span");
  const watch = new ResizeObserver(draw);
  watch.observe(list);
  const stop = subscribe((change) => (change.cards === null || change.events.length || change.cards.size) && load());
  load();
  return {
    tick: () => scale.pinned === null && document.activeElement?.closest?.(".lane") === null && draw(),
    stop: () => {
      stop();
      tip.remove();
      watch.disconnect();
    },
  };
}

const rank = (member) => (member.link === "departed" ? 2 : member.spans.some((span) => span.live) ? 0 : 1);

function row(member, svg) {
  const held = member.spans.filter((span) => span.live);
  return h(
    "div",
    { class: `fleet-row ${member.link}`, role: "listitem" },
    h("div", { class: "fleet-who" }, h("a", { href: address({ view: "agent", agent: member.agent_id }) }, named(member)), h("small", null, linkState(member), member.role && h("span", { class: "muted ellipsis" }, member.role))),
    h("div", { class: "fleet-seen" }, ago(member.seen_at)),
    h("div", { class: "fleet-task" }, held.length ? held.map((span) => h("a", { class: "mono", href: address({ task: span.task_id }) }, span.task_id)) : h("span", { class: "muted" }, "idle")),
    h("div", null, health(member.health)),
    svg,
  );
}
