// The tasks around a task as a picture: what is needed stands left of what needs it.

import { s } from "./dom.js";
import { address } from "./url.js";

const WIDTH = 148;
const HEIGHT = 40;
const ACROSS = 44;
const DOWN = 12;

/** Each task's layer: one more than the last of what it needs. Cycles end where they would come round. */
function layers(nodes, edges) {
  const needs = new Map(nodes.map((node) => [node.task_id, []]));
  for (const [from, to] of edges) needs.get(from)?.push(to);
  const found = new Map();
  const place = (id, above) => {
    if (found.has(id)) return found.get(id);
    if (above.has(id)) return 0;
    above.add(id);
    const layer = Math.max(-1, ...needs.get(id).filter((need) => needs.has(need)).map((need) => place(need, above))) + 1;
    above.delete(id);
    found.set(id, layer);
    return layer;
  };
  for (const node of nodes) place(node.task_id, new Set());
  return found;
}

export function graph({ nodes, edges }, here) {
  const layer = layers(nodes, edges);
  const rows = [];
  const at = new Map();
  for (const node of nodes) {
    const column = layer.get(node.task_id);
    rows[column] ??= 0;
    at.set(node.task_id, { column, row: rows[column]++ });
  }
  const tallest = Math.max(...rows.map((count) => count ?? 0));
  const width = rows.length * (WIDTH + ACROSS) - ACROSS;
  const height = tallest * (HEIGHT + DOWN) - DOWN;
  const spot = (id) => {
    const { column, row } = at.get(id);
    const offset = ((tallest - rows[column]) * (HEIGHT + DOWN)) / 2;
    return { x: column * (WIDTH + ACROSS), y: offset + row * (HEIGHT + DOWN) };
  };
  const states = new Map(nodes.map((node) => [node.task_id, node.status]));
  return s(
    "svg",
    { class: "graph", style: { width: "100%", maxWidth: `${width + 4}px`, minWidth: `${Math.round(width * 0.72)}px` }, viewBox: `-2 -2 ${width + 4} ${height + 4}`, role: "group", "aria-label": `Dependencies: ${edges.map(([from, to]) => `${from} needs ${to}`).join("; ")}` },
    edges.map(([from, to]) => {
      const start = spot(to);
      const end = spot(from);
      const x1 = start.x + WIDTH;
      const y1 = start.y + HEIGHT / 2;
      const y2 = end.y + HEIGHT / 2;
      const bend = Math.max(24, Math.abs(end.x - x1) / 2);
      return s("path", { class: `edge ${states.get(to) === "done" ? "met" : "open"}`, d: `M${x1} ${y1}C${x1 + bend} ${y1} ${end.x - bend} ${y2} ${end.x - 6} ${y2}m-5 -4l6 4l-6 4` });
    }),
    nodes.map((node) => box(node, spot(node.task_id), node.task_id === here)),
  );
}

function box(node, { x, y }, current) {
  const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
  const made = s(
    node.status ? "a" : "g",
    { class: `node ${node.status ?? "missing"}${current ? " current" : ""}`, href: node.status ? address({ task: node.task_id }) : null, "aria-label": `${node.task_id}, ${node.status ?? "missing"}` },
    s("title", null, `${node.task_id}: ${node.title || "there is no such task"} (${node.status ?? "missing"})`),
    s("rect", { x, y, width: WIDTH, height: HEIGHT, rx: 6 }),
    s("rect", { class: "node-status", x, y: y + 8, width: 3, height: HEIGHT - 16, rx: 1.5 }),
    s("text", { class: "node-id", x: x + 12, y: y + 16 }, short(node.task_id, 20)),
    s("text", { class: "node-title", x: x + 12, y: y + 31 }, short(node.title || "missing", 23)),
  );
  return made;
}
