// Whether the server can simulate yet, and what it does until then.
import * as api from "./api.js";

const INTERVAL_MS = 500;

function words({ progress = 0 }) {
  const doing = progress > 0 ? `compiling its simulator: ${Math.round(100 * progress)} %` : "loading its simulator";
  return `Recorded episode; the server is ${doing}`;
}

// Resolves when the server is ready; meanwhile the element tells what happens.
export async function untilReady(element) {
  for (;;) {
    const health = await api.health().catch(() => ({ ready: false }));
    if (health.ready) break;
    element.dataset.state = "waiting";
    element.textContent = words(health);
    await new Promise((resolve) => setTimeout(resolve, INTERVAL_MS));
  }
  element.dataset.state = "live";
  element.textContent = "Recorded episode; the simulator is ready";
}
