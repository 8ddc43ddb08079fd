"use strict";
const episodes = JSON.parse(document.getElementById("episodes").textContent);
const byId = (id) => document.getElementById(id);
const WIDTH = 400, HEIGHT = 140, COLOURS = ["var(--blue)", "#c77700", "#2a8a4a", "#8a4fbf", "#8b6b4a", "#00808a"];
let watched = null, timer = null;

// Sort a table by the column whose heading was pressed; numbers by value, text by alphabet.
for (const heading of document.querySelectorAll("table.sortable th")) {
  heading.querySelector("button").addEventListener("click", () => {
    const rising = heading.getAttribute("aria-sort") !== "ascending";
    for (const other of heading.parentNode.children) other.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", rising ? "ascending" : "descending");
    const column = [...heading.parentNode.children].indexOf(heading), body = heading.closest("table").tBodies[0];
    const value = (row) => row.children[column].dataset.value;
    const order = (a, b) => (isNaN(value(a)) || isNaN(value(b)) ? value(a).localeCompare(value(b)) : value(a) - value(b));
    body.append(...[...body.rows].sort((a, b) => (rising ? order(a, b) : order(b, a))));
  });
}

// A chart of some series up to a window: lines from the left, each scaled by the common highest value.
function chart(title, series, until, limits = {}) {
  const high = Math.max(1e-9, ...Object.values(series).flat(), ...Object.values(limits));
  const length = Object.values(series)[0].length, y = (v) => HEIGHT - 4 - (v / high) * (HEIGHT - 22);
  const lines = Object.entries(series).map(([name, values], i) => {
    const points = values.slice(0, until).map((v, t) => `${((t + 1) / length) * WIDTH},${y(v).toFixed(1)}`).join(" ");
    const label = `<text x="${4 + i * 130}" y="12" style="fill:${COLOURS[i]}">${name} ${values[until - 1]}</text>`;
    return `<polyline fill="none" stroke="${COLOURS[i]}" stroke-width="1.5" points="${points}"/>${label}`;
  });
  const marks = Object.entries(limits).map(([name, v]) =>
    `<line x1="0" x2="${WIDTH}" y1="${y(v)}" y2="${y(v)}" stroke="var(--red)" stroke-dasharray="4"/>` +
    `<text x="${WIDTH - 4}" y="${y(v) - 3}" text-anchor="end">${name}</text>`);
  return `<figure><figcaption>${title}</figcaption><svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" ` +
    `role="img" aria-label="${title}">${lines.join("")}${marks.join("")}</svg></figure>`;
}

function draw() {
  const episode = watched[byId("task").value], until = Number(byId("at").value), m = episode.metrics;
  const knobs = Object.fromEntries(Object.entries(episode.knobs).map(([name, k]) => [name, k.values.map((v) => +(v / k.high).toFixed(3))]));
  const slos = Object.fromEntries(Object.entries(episode.slos_ms).map(([name, v]) => [`SLO ${name}`, v]));
  byId("now").textContent = `${until} of ${episode.reward.length}, seed ${episode.seed}`;
  byId("charts").innerHTML = [
    chart("Traffic, requests per second", { rate: m.window_rate_rps, waiting: m.queue_depth }, until),
    chart("Time to first token, ms", { p50: m.ttft_p50_ms, p99: m.ttft_p99_ms }, until, slos),
    chart("Share of requests within their SLO", { share: episode.slo }, until, { all: 1 }),
    chart("Knobs, each as a share of its highest value", knobs, until, { highest: 1 }),
  ].join("");
}

function stop() { clearInterval(timer); timer = null; byId("play").textContent = "Play"; }

function show() {
  const steps = watched[byId("task").value].reward.length;
  byId("at").max = steps;
  byId("at").value = steps;
  draw();
}

for (const button of document.querySelectorAll("button.watch")) {
  button.addEventListener("click", () => {
    watched = episodes[button.dataset.file];
    byId("who").textContent = button.textContent;
    byId("task").innerHTML = Object.keys(watched).map((id) => `<option>${id}</option>`).join("");
    byId("watch").hidden = false;
    stop();
    show();
    byId("watch").scrollIntoView({ behavior: "smooth" });
  });
}
byId("task").addEventListener("change", () => { stop(); show(); });
byId("at").addEventListener("input", () => { stop(); draw(); });
byId("play").addEventListener("click", () => {
  if (timer) return stop();
  byId("play").textContent = "Pause";
  if (Number(byId("at").value) >= Number(byId("at").max)) byId("at").value = 1;
  timer = setInterval(() => {
    byId("at").value = Number(byId("at").value) + 1;
    draw();
    if (Number(byId("at").value) >= Number(byId("at").max)) stop();
  }, 60);
});
