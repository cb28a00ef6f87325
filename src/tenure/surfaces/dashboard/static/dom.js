// Building the page. Text goes in as text nodes only: whatever an agent wrote is shown, never run.

const SVG = "http://www.w3.org/2000/svg";

/** An element. Attributes that start with "on" are listeners; null, undefined and false are left out. */
export function h(name, attributes, ...children) {
  return build(document.createElement(name), attributes, children);
}

/** The same for SVG. */
export function s(name, attributes, ...children) {
  return build(document.createElementNS(SVG, name), attributes, children);
}

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Put these in place of everything inside. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Set a text only if it differs: assistive technology is not told of what did not change. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const SHAPES = {
  board: "M3 4h5v16H3zM10 4h5v10h-5zM17 4h4v13h-4z",
  fleet: "M4 6h10M8 12h12M4 18h7",
  pulse: "M3 12h4l3-8 4 16 3-8h4",
  search: "M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM15.5 15.5 21 21",
  plus: "M12 5v14M5 12h14",
  close: "M6 6l12 12M18 6L6 18",
  back: "M15 5l-7 7 7 7",
  check: "M5 13l4 4L19 7",
  link: "M9 15l6-6M8 11l-2 2a3.5 3.5 0 0 0 5 5l2-2M16 13l2-2a3.5 3.5 0 0 0-5-5l-2 2",
  unlink: "M8 11l-2 2a3.5 3.5 0 0 0 5 5l2-2M16 13l2-2a3.5 3.5 0 0 0-5-5l-2 2",
  gone: "M5 5l14 14M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16z",
  move: "M4 12h15M13 6l6 6-6 6",
  handoff: "M4 8h11l-3-3M20 16H9l3 3",
  lock: "M7 11V8a5 5 0 0 1 10 0v3M5 11h14v9H5z",
  retry: "M20 11a8 8 0 1 0-2.3 6.3M20 5v6h-6",
  keys: "M3 6h18v12H3zM7 10h.01M11 10h.01M15 10h.01M8 14h8",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5z",
};

/** A line icon; it says nothing to a screen reader, so its neighbour must. */
export function icon(name, size = 16) {
  return s(
    "svg",
    { class: "icon", width: size, height: size, viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" },
    s("path", { d: SHAPES[name], fill: "none", stroke: "currentColor", "stroke-width": 2, "stroke-linecap": "round", "stroke-linejoin": "round" }),
  );
}

const PRIORITY = {
  critical: "M2 8l4-4 4 4M2 11l4-4 4 4",
  high: "M2 8.5l4-4 4 4",
  medium: "M2 6h8",
  low: "M2 4.5l4 4 4-4",
};

/** A priority, told by shape as well as by colour. */
export function priority(name) {
  return s(
    "svg",
    { class: `priority ${name}`, width: 14, height: 14, viewBox: "0 0 12 14", role: "img", "aria-label": `${name} priority` },
    s("title", null, `${name} priority`),
    s("path", { d: PRIORITY[name], fill: "none", stroke: "currentColor", "stroke-width": 2, "stroke-linecap": "round", "stroke-linejoin": "round" }),
  );
}
