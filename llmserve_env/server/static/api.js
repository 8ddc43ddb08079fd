// The server's HTTP interface. Errors are thrown with the server's own words.
export const base = location.pathname.replace(/\/(web|docs)\/?$/, "");
const RETRY_MS = 400;
const MAX_RETRIES = 8;

function words(status, answer) {
  const detail = answer && answer.detail;
  const named = ({ field, msg }) => (msg.includes(field.split(".").pop()) ? msg : `${field}: ${msg}`);
  if (Array.isArray(detail)) return detail.map(named).join("; ");
  return detail || `the server answered ${status}`;
}

// A refusal for too many requests is temporary, so it is repeated after the time that the server names.
async function send(path, options, retries = MAX_RETRIES) {
  let response;
  try {
    response = await fetch(base + path, options);
  } catch {
    throw new Error("The server cannot be reached. The episode is kept there; try again.");
  }
  if (response.status !== 429 || retries === 0) return response;
  const wait_ms = 1000 * Number(response.headers.get("retry-after")) || RETRY_MS;
  await new Promise((resolve) => setTimeout(resolve, wait_ms));
  return send(path, options, retries - 1);
}

async function call(method, path, body) {
  const headers = body === undefined ? {} : { "content-type": "application/json" };
  const response = await send(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const answer = await response.json().catch(() => null);
  if (!response.ok) throw new Error(words(response.status, answer));
  return answer;
}

const named = (id) => "?session_id=" + encodeURIComponent(id);

export const health = () => call("GET", "/health");
export const opening = () => call("GET", "/web/static/opening.json");
export const tasks = () => call("GET", "/tasks");
export const agents = (task) => call("GET", "/agents?task_id=" + encodeURIComponent(task));
export const reset = (task_id, seed) => call("POST", "/reset", seed === null ? { task_id } : { task_id, seed });
export const step = (session_id, action, step_index) => call("POST", "/step", { session_id, action, step_index });
export const play = (session_id, agent, steps) => call("POST", "/play", { session_id, agent, steps });
export const state = (session_id) => call("GET", "/state" + named(session_id));
export const grade = (session_id) => call("POST", "/grader", { session_id });
export const log = (session_id) => call("GET", "/log" + named(session_id));
