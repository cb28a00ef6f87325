// Where we are is in the address: view, project, filters and search. Links are shareable, back and forward work.

const listeners = new Set();

/** The address as an object; absent keys are undefined. */
export function here() {
  return Object.fromEntries(new URLSearchParams(location.search));
}

export function address(changes, keep = ["project"]) {
  const present = here();
  const query = new URLSearchParams();
  for (const key of keep) if (present[key]) query.set(key, present[key]);
  for (const [key, value] of Object.entries(changes)) {
    if (value) query.set(key, value);
    else query.delete(key);
  }
  return query.size ? `/?${query}` : "/";
}

/** Go somewhere: a new entry of the history. */
export function go(target) {
  history.pushState(null, "", target);
  tell();
}

/** Change the present entry: what is typed into a search box makes no history. */
export function replace(changes) {
  history.replaceState(null, "", address(changes, Object.keys(here())));
  tell();
}

export function onMove(listener) {
  listeners.add(listener);
}

function tell() {
  for (const listener of listeners) listener();
}

addEventListener("popstate", tell);
addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='/?'], a[href='/']");
  if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.defaultPrevented) return;
  event.preventDefault();
  go(link.getAttribute("href"));
});
