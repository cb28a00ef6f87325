// Questions and short notices. A dialog is the browser's own: it keeps the focus and gives it back.

import { fill, h, icon } from "./dom.js";

/** Show a dialog and wait; the answer is what `done` was called with, null when it was closed. */
export function ask(title, build, { wide = false } = {}) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { class: wide ? "dialog wide" : "dialog", "aria-labelledby": "dialog-title" });
    let answer = null;
    const done = (value) => {
      answer = value;
      dialog.close();
    };
    fill(
      dialog,
      h(
        "form",
        { method: "dialog", onsubmit: (event) => event.preventDefault() },
        h(
          "header",
          { class: "dialog-head" },
          h("h2", { id: "dialog-title" }, title),
          h("button", { type: "button", class: "button quiet", "aria-label": "Close", onclick: () => done(null) }, icon("close")),
        ),
        build(done),
      ),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(answer);
    });
    dialog.addEventListener("click", (event) => event.target === dialog && done(null));
    document.body.append(dialog);
    dialog.showModal();
    dialog.querySelector("[autofocus]")?.focus();
  });
}

export function buttons(...children) {
  return h("footer", { class: "dialog-foot" }, children);
}

export function button(text, onclick, kind = "", more = {}) {
  return h("button", { type: "button", class: `button ${kind}`, onclick, ...more }, text);
}

/** Say something in passing. */
export function toast(text, kind = "") {
  const shown = h("div", { class: `toast ${kind}` }, text);
  document.getElementById("toasts").append(shown);
  setTimeout(() => shown.remove(), kind === "bad" ? 8_000 : 4_000);
}

/** Say why something did not work. */
export function complain(error) {
  toast([error.message, error.next].filter(Boolean).join(" "), "bad");
}
