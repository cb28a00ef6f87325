// One agent: its leases in time, and its silences against what was allowed.

import { who } from "./card.js";
import { fill, h, icon, s } from "./dom.js";
import { health, linkState, named, zoomBar } from "./fleet.js";
import { get } from "./net.js";
import { Scale, SPANS } from "./scale.js";
import { silence, silenceLegend } from "./silence.js";
import { subscribe } from "./state.js";
import { bars, ending, explain, grid, legend } from "./timeline.js";
import { ago, correct, duration, exact, now } from "./time.js";
import { address, here, replace } from "./url.js";

const LANE = 64;

export function agent(main, agentId) {
  const scale = new Scale(Number(here().span) || SPANS[0][0]);
  const zoom = zoomBar(scale);
  const plot = silence(scale);
  const facts = h("dl", { class: "facts" });
  const lane = s("svg", { class: "lane big", height: LANE + 24, role: "group", "aria-label": "Leases" });
  const frame = h("div", { class: "plot" }, h("div", { class: "plot-lane" }, lane), plot.element);
  const past = h("tbody");
  const title = h("h1", null, who(agentId));
  fill(
    main,
    h("header", { class: "bar" }, h("a", { class: "button quiet", href: address({ view: "fleet" }), "aria-label": "Back to the fleet" }, icon("back")), title, h("div", { class: "bar-tools" }, zoom.element)),
    h(
      "div",
      { class: "page" },
      facts,
      h("section", { class: "panel", "aria-label": "Timeline and silences" }, h("h2", null, "Why the deadline is where it is"), h("p", { class: "muted" }, "Each stem is a silence before a call. The line is the silence that was allowed: term and grace, or the agent's own cadence, a link or an announcement where that is longer."), frame, silenceLegend(), legend()),
      h(
        "section",
        { class: "panel" },
        h("h2", null, "Leases"),
        h("div", { class: "scroll-x", tabindex: 0, role: "region", "aria-label": "Leases" }, h("table", { class: "table" }, h("thead", null, h("tr", null, ["Task", "Began", "Held for", "Ended", "Calls", "Median gap"].map((name) => h("th", { scope: "col" }, name)))), past)),
      ),
    ),
  );
  let member = null;

  async function load() {
    try {
      const seen = await get(`/dashboard/agents/${encodeURIComponent(agentId)}`);
      correct(seen.now);
      member = seen.member;
    } catch (error) {
      fill(facts, h("div", { class: "bad" }, h("dt", null, "No such agent"), h("dd", null, error.message)));
      return;
    }
    fill(title, named(member));
    const held = member.spans.filter((span) => span.live);
    const fact = (name, value) => h("div", { class: "fact" }, h("dt", null, name), h("dd", null, value));
    fill(
      facts,
      fact("Link", linkState(member)),
      fact("Last sign of life", ago(member.seen_at)),
      fact("Holds", held.length ? held.map((span) => h("a", { class: "mono", href: address({ task: span.task_id }) }, span.task_id)) : "nothing"),
      fact("Health", health(member.health)),
      fact("Profile", member.profile),
      fact("Incarnation", String(member.incarnation)),
      member.branch && fact("Branch", h("code", null, member.branch)),
    );
    fill(
      past,
      member.spans.slice(0, 100).map((span) =>
        h(
          "tr",
          null,
          h("td", null, h("a", { class: "mono", href: address({ task: span.task_id }) }, span.task_id)),
          h("td", null, ago(span.granted_at)),
          h("td", { class: "num" }, duration((span.ended_at ?? now()) - span.granted_at)),
          h("td", null, h("span", { class: `tag ${ending(span)}` }, ending(span)), span.ended_at && h("span", { class: "muted" }, ` ${exact(span.ended_at)}`)),
          h("td", { class: "num" }, String(span.touches)),
          h("td", { class: "num" }, span.median_gap_ms === null ? "–" : duration(span.median_gap_ms)),
        ),
      ),
    );
    if (here().span === undefined && member.spans.length && !fitted) fit();
    draw();
  }

  let fitted = false;
  /** Begin with a stretch in which there is something to see. */
  function fit() {
    fitted = true;
    const first = Math.min(...member.spans.slice(0, 3).map((span) => span.granted_at));
    scale.span = Math.max(5 * 60_000, Math.min((now() - first) * 1.05, 6 * 3_600_000));
    zoom.draw();
  }

  function draw() {
    if (!member) return;
    const live = member.spans.find((span) => span.live);
    scale.lead = live ? live.recover_at - now() : 0;
    scale.width = Math.max(160, frame.clientWidth - plot.left);
    lane.setAttribute("width", scale.width + plot.left);
    lane.setAttribute("viewBox", `${-plot.left} 0 ${scale.width + plot.left} ${LANE}`);
    lane.setAttribute("height", LANE);
    fill(lane, grid(scale, LANE), bars(scale, member, { height: LANE }), s("line", { class: "now", x1: scale.x(now()), x2: scale.x(now()), y1: 0, y2: LANE }));
    plot.draw(member);
  }

  scale.changed = () => {
    zoom.draw();
    replace({ span: String(Math.round(scale.span)) });
    draw();
  };
  scale.attach(frame);
  const tip = explain(lane, ".span");
  const watch = new ResizeObserver(draw);
  watch.observe(frame);
  let waiting = 0;
  const stop = subscribe((change) => {
    if (change.cards !== null && !change.events.length && !change.cards.size) return;
    clearTimeout(waiting);
    waiting = setTimeout(load, 300);
  });
  load();
  return {
    tick: () => scale.pinned === null && draw(),
    stop: () => {
      stop();
      clearTimeout(waiting);
      tip.remove();
      plot.remove();
      watch.disconnect();
    },
  };
}

