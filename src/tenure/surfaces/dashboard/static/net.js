// Talking to the server. Every write carries a header that no other site can send in the visitor's name.

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? body.error ?? `The server answered ${status}.`);
    this.status = status;
    this.code = body.code ?? body.error ?? "";
    this.next = body.next ?? "";
    this.facts = body.facts ?? {};
  }
}

async function answer(response) {
  let body = {};
  try {
    body = await response.json();
  } catch {
    // A proxy's page, or nothing at all: the status says enough.
  }
  if (!response.ok) throw new Problem(response.status, body);
  return body;
}

export async function get(path, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== undefined && value !== ""));
  const asked = query.size ? `${path}?${query}` : path;
  return answer(await fetch(asked, { headers: { accept: "application/json" }, cache: "no-store" }));
}

async function send(method, path, body) {
  const headers = { "content-type": "application/json", "x-tenure-dashboard": "1" };
  return answer(await fetch(path, { method, headers, body: JSON.stringify(body) }));
}

export const act = (name, body) => send("POST", `/dashboard/do/${name}`, body);
export const signIn = (token) => send("POST", "/dashboard/session", { token });
export const signOut = () => send("DELETE", "/dashboard/session", {});
