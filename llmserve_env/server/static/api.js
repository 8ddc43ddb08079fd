// The server's HTTP interface. Errors are thrown with the server's own words.
export const base = location.pathname.replace(/\/web\/?$/, "");

function words(status, answer) {
  const detail = answer && answer.detail;
  const named = ({ field, msg }) => (msg.includes(field.split(".").pop()) ? msg : `${field}: ${msg}`);
  if (Array.isArray(detail)) return detail.map(named).join("; ");
  return detail || `the server answered ${status}`;
}

async function call(method, path, body) {
  const headers = body === undefined ? {} : { "content-type": "application/json" };
  let response;
  try {
    response = await fetch(base + path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Error("the server cannot be reached; the episode is kept there, try again");
  }
  const answer = await response.json().catch(() => null);
  if (!response.ok) throw new Error(words(response.status, answer));
  return answer;
}

const named = (id) => "?session_id=" + encodeURIComponent(id);

export const health = () => call("GET", "/health");
export const tasks = () => call("GET", "/tasks");
export const agents = (task) => call("GET", "/agents?task_id=" + encodeURIComponent(task));
export const reset = (task_id, seed) => call("POST", "/reset", seed === null ? { task_id } : { task_id, seed });
export const step = (session_id, action, step_index) => call("POST", "/step", { session_id, action, step_index });
export const play = (session_id, agent, steps) => call("POST", "/play", { session_id, agent, steps });
export const state = (session_id) => call("GET", "/state" + named(session_id));
export const grade = (session_id) => call("POST", "/grader", { session_id });
export const log = (session_id) => call("GET", "/log" + named(session_id));
