// A column that draws only what can be seen of it: five thousand cards cost as much as fifteen.

import { card, CARD_HEIGHT, GAP, tick } from "./card.js";
import { fill, h, say } from "./dom.js";
import { NAMES } from "./state.js";

const STEP = CARD_HEIGHT + GAP;
const BEYOND = 4;

export class Column {
  constructor(status) {
    this.status = status;
    this.tasks = [];
    this.drawn = new Map();
    this.focused = 0;
    this.count = h("span", { class: "column-count" });
    this.note = h("p", { class: "column-note", hidden: true });
    this.space = h("div", { class: "column-space", role: "presentation" });
    this.scroller = h("div", { class: "column-scroll", tabindex: -1 }, this.space, this.note);
    this.element = h(
      "section",
      { class: `column ${status}`, "aria-label": NAMES[status], data: { status } },
      h("header", { class: "column-head" }, h("span", { class: `dot ${status}`, "aria-hidden": "true" }), h("h2", null, NAMES[status]), this.count),
      this.scroller,
    );
    this.scroller.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(this.scroller);
  }

  /** Show these, best first; `total` is how many there are in all, `filtered` whether a filter hides some. */
  show(tasks, total, filtered) {
    this.tasks = tasks;
    this.focused = Math.max(0, Math.min(this.focused, tasks.length - 1));
    say(this.count, filtered ? `${tasks.length} of ${total}` : String(total));
    this.space.style.height = `${Math.max(0, tasks.length * STEP - GAP)}px`;
    const rest = filtered ? 0 : total - tasks.length;
    this.note.hidden = tasks.length > 0 && rest <= 0;
    if (!tasks.length) say(this.note, filtered ? "Nothing here matches." : "Nothing here.");
    else if (rest > 0) say(this.note, `${rest} older ones are not shown.`);
    this.draw();
  }

  draw() {
    const top = this.scroller.scrollTop;
    const first = Math.max(0, Math.floor(top / STEP) - BEYOND);
    const last = Math.min(this.tasks.length, Math.ceil((top + this.scroller.clientHeight) / STEP) + BEYOND);
    const wanted = new Map();
    for (let index = first; index < last; index += 1) wanted.set(this.tasks[index].task_id, index);
    const active = document.activeElement?.closest?.(".card");
    const focusId = active && this.space.contains(active) ? active.dataset.id : null;
    for (const [id, element] of this.drawn) {
      const index = wanted.get(id);
      if (index === undefined || element.task !== this.tasks[index]) {
        // A card that a person drags or stands on is replaced only when it has changed.
        element.remove();
        this.drawn.delete(id);
      }
    }
    let before = null;
    for (const [id, index] of wanted) {
      let element = this.drawn.get(id);
      if (!element) {
        element = card(this.tasks[index]);
        element.task = this.tasks[index];
        this.drawn.set(id, element);
      }
      // The order of the document is the order on the screen: that is what is read aloud.
      if (!element.isConnected || element.previousElementSibling !== before) {
        if (before) before.after(element);
        else this.space.prepend(element);
      }
      before = element;
      element.style.transform = `translateY(${index * STEP}px)`;
      element.tabIndex = index === this.focused ? 0 : -1;
      element.setAttribute("aria-posinset", index + 1);
      element.setAttribute("aria-setsize", this.tasks.length);
    }
    if (focusId && this.drawn.has(focusId) && document.activeElement?.dataset?.id !== focusId) this.drawn.get(focusId).focus({ preventScroll: true });
  }

  /** Put the focus on a card by its place. */
  focus(index) {
    if (!this.tasks.length) return false;
    this.focused = Math.max(0, Math.min(index, this.tasks.length - 1));
    const top = this.focused * STEP;
    const view = this.scroller;
    if (top < view.scrollTop) view.scrollTop = top;
    else if (top + STEP > view.scrollTop + view.clientHeight) view.scrollTop = top + STEP - view.clientHeight;
    this.draw();
    const element = this.drawn.get(this.tasks[this.focused].task_id);
    element?.focus({ preventScroll: true });
    element?.scrollIntoView({ block: "nearest", inline: "nearest" });
    return Boolean(element);
  }

  tick() {
    for (const element of this.drawn.values()) tick(element);
  }

  clear() {
    this.drawn.clear();
    fill(this.space);
  }
}
