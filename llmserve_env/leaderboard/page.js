"use strict";
const episodes = JSON.parse(document.getElementById("episodes").textContent);
const byId = (id) => document.getElementById(id);
const HEIGHT = 140, TOP = 8, BOTTOM = 4;
const COLOURS = ["var(--blue)", "var(--orange)", "var(--green)", "var(--violet)", "var(--brown)", "var(--teal)"];
const plain = (v) => v.toLocaleString("en", { maximumFractionDigits: 2 });
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

// A chart of some series up to a window, as {name: {values, text}}; the legend names each with its value there.
function chart(title, series, until, limits = {}) {
  const all = Object.values(series).flatMap(({ values }) => values);
  const high = Math.max(1e-9, ...all, ...Object.values(limits));
  const width = Math.max(200, byId("charts").clientWidth / (byId("charts").clientWidth > 700 ? 2 : 1) - 8);
  const y = (v) => (HEIGHT - BOTTOM - (v / high) * (HEIGHT - TOP - BOTTOM)).toFixed(1);
  const named = Object.entries(series);
  const lines = named.map(([, { values }], i) => {
    const points = values.slice(0, until).map((v, t) => `${(((t + 1) / values.length) * width).toFixed(1)},${y(v)}`).join(" ");
    return `<polyline fill="none" style="stroke:${COLOURS[i]}" stroke-width="1.5" points="${points}"/>`;
  });
  const marks = Object.values(limits).map((v) => `<line class="limit" x1="0" x2="${width}" y1="${y(v)}" y2="${y(v)}"/>`);
  const keys = named.map(([name, { values, text = plain }], i) => `<span><i style="background:${COLOURS[i]}"></i>${name} ${text(values[until - 1])}</span>`);
  const limitKeys = Object.entries(limits).map(([name, v]) => `<span><i class="limit"></i>${name} ${plain(v)}</span>`);
  return `<figure><figcaption>${title}</figcaption><p class="key">${[...keys, ...limitKeys].join("")}</p>` +
    `<svg viewBox="0 0 ${width} ${HEIGHT}" height="${HEIGHT}" role="img" aria-label="${title}">${marks.join("")}${lines.join("")}</svg></figure>`;
}

function draw() {
  const episode = watched[byId("task").value], until = Number(byId("at").value), m = episode.metrics;
  const knob = ({ high, values, names }) => ({
    values: values.map((v) => v / high),
    text: (share) => { const v = Math.round(share * high * 1000) / 1000; return names ? names[v] : plain(v); },
  });
  const knobs = Object.fromEntries(Object.entries(episode.knobs).map(([name, one]) => [name, knob(one)]));
  const slos = Object.fromEntries(Object.entries(episode.slos_ms).map(([name, v]) => [`SLO of ${name.replaceAll("_", " ")}`, v]));
  byId("now").textContent = `${until} of ${episode.reward.length}, seed ${episode.seed}`;
  byId("charts").innerHTML = [
    chart("Traffic", { "requests per second": { values: m.window_rate_rps }, waiting: { values: m.queue_depth } }, until),
    chart("Time to first token, ms", { median: { values: m.ttft_p50_ms }, p99: { values: m.ttft_p99_ms } }, until, slos),
    chart("Requests within their SLO", { share: { values: episode.slo, text: (v) => `${Math.round(100 * v)} %` } }, until),
    chart("Knobs, each from 0 to its highest value", knobs, until),
  ].join("");
}

function stop() { clearInterval(timer); timer = null; byId("play").textContent = "Play"; }

function play() {
  byId("play").textContent = "Pause";
  if (Number(byId("at").value) >= Number(byId("at").max)) byId("at").value = 1;
  timer = setInterval(() => {
    byId("at").value = Number(byId("at").value) + 1;
    draw();
    if (Number(byId("at").value) >= Number(byId("at").max)) stop();
  }, 60);
}

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
    // The core suite has its hardest task last.
    byId("task").selectedIndex = byId("task").options.length - 1;
    byId("watch").hidden = false;
    stop();
    show();
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) play();
    byId("watch").scrollIntoView({ behavior: "smooth" });
  });
}
byId("task").addEventListener("change", () => { stop(); show(); });
byId("at").addEventListener("input", () => { stop(); draw(); });
byId("play").addEventListener("click", () => (timer ? stop() : play()));
window.addEventListener("resize", () => { if (watched) draw(); });
