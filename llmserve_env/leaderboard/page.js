"use strict";
const byId = (id) => document.getElementById(id);
const episodes = JSON.parse(byId("episodes").textContent);
const HEIGHT = 128, TOP = 8, BOTTOM = 18, LEFT = 44, RIGHT = 8, STRIP = 26;
const plain = (v) => v.toLocaleString("en", { maximumFractionDigits: Math.abs(v) < 10 ? 2 : 0 });
const percent = (v) => `${Math.round(100 * v)} %`;
const duration = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${plain(ms / 1000)} s`);
const names = {};
for (const button of document.querySelectorAll("button.watch")) names[button.dataset.file] = button.textContent;
let file = null, timer = null;

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

const summed = (values) => { let sum = 0; return values.map((v) => (sum += v)); };
const metric = (name) => (episode) => episode.metrics[name];
const CHARTS = [
  { title: "Traffic", unit: "requests arriving per second", of: metric("window_rate_rps"), isShared: true, low: 0 },
  { title: "First token", unit: "median wait", of: metric("ttft_p50_ms"), format: duration, isLog: true, low: 10, hasLimits: true },
  { title: "SLO met", unit: "share of requests", of: (episode) => episode.slo, format: percent, low: 0, high: 1 },
  { title: "Waiting", unit: "requests in the queue", of: metric("queue_depth"), low: 0 },
  { title: "Throughput", unit: "output tokens per second", of: metric("throughput_tps"), low: 0 },
  { title: "Reward", unit: "sum since the start", of: (episode) => summed(episode.reward) },
];

// Whom the charts show: the agent that was pressed, and the one it is compared with.
function lanes() {
  const task = byId("task").value, other = byId("against").value;
  return [file, other].filter(Boolean).map((one) => ({ name: names[one], episode: episodes[one][task] }));
}

function scaleOf({ isLog, low, high, hasLimits }, all, limits) {
  const f = isLog ? (v) => Math.log10(Math.max(v, low)) : (v) => v;
  const bottom = low ?? Math.min(0, ...all), top = high ?? Math.max(...all, ...(hasLimits ? limits.map((v) => 1.6 * v) : []), bottom + 1);
  const span = f(top) - f(bottom) || 1;
  const marks = isLog ? [10, 100, 1000, 10000, 100000].filter((v) => v >= bottom && v <= top) : [bottom, (bottom + top) / 2, top];
  return { marks, y: (v) => (HEIGHT - BOTTOM - ((f(v) - f(bottom)) / span) * (HEIGHT - TOP - BOTTOM)).toFixed(1) };
}

function chart(one, shown, until, width) {
  const { title, unit, of, format = plain, isShared, hasLimits } = one;
  const series = (isShared ? shown.slice(0, 1) : shown).map(({ episode }) => of(episode));
  const limits = hasLimits ? Object.entries(shown[0].episode.slos_ms) : [];
  const { marks, y } = scaleOf(one, series.flat(), limits.map(([, v]) => v));
  const steps = series[0].length, x = (t) => (LEFT + (t / steps) * (width - LEFT - RIGHT)).toFixed(1);
  const colour = (i) => (isShared ? "var(--ink)" : `var(--${"ab"[i]})`);
  const grid = marks.map((v) => `<line class="grid" x1="${LEFT}" x2="${width - RIGHT}" y1="${y(v)}" y2="${y(v)}"/><text x="${LEFT - 5}" y="${+y(v) + 3.5}" text-anchor="end">${format(v)}</text>`);
  const times = [0, 0.5, 1].map((share) => `<text x="${x(share * steps)}" y="${HEIGHT - 3}" text-anchor="${["start", "middle", "end"][2 * share]}">${plain(share * steps * shown[0].episode.window_s)}${share === 1 ? " s" : ""}</text>`);
  const promised = limits.map(([name, v]) => `<line class="limit" x1="${LEFT}" x2="${width - RIGHT}" y1="${y(v)}" y2="${y(v)}"/><text class="limit" x="${width - RIGHT - 2}" y="${y(v) - 3}" text-anchor="end">${name.replaceAll("_", " ")} ${duration(v)}</text>`);
  const lines = series.map((values, i) => {
    const points = values.slice(0, until).map((v, t) => `${x(t + 1)},${y(v)}`);
    const [headX, headY] = points.at(-1).split(",");
    return `<polyline style="stroke:${colour(i)}" points="${points.join(" ")}"/><circle style="fill:${colour(i)}" cx="${headX}" cy="${headY}" r="3"/>`;
  });
  const now = series.map((values, i) => `<b style="color:${colour(i)}">${format(values[until - 1])}</b>`);
  const spoken = series.map((values, i) => `${isShared ? "" : shown[i].name + " "}${format(values[until - 1])}`);
  return `<figure><figcaption><span>${title} <small>${unit}</small></span><span>${now.join(" ")}</span></figcaption>` +
    `<svg viewBox="0 0 ${width} ${HEIGHT}" height="${HEIGHT}" role="img" aria-label="${title}, ${unit}: ${spoken.join(", ")}">` +
    // The agent that was pressed is drawn last, on top.
    `${grid.join("")}${times.join("")}${lines.reverse().join("")}${promised.join("")}</svg></figure>`;
}

function strip(name, shown, until, width) {
  const knobs = shown.map(({ episode }) => episode.knobs[name]), steps = knobs[0].values.length;
  const text = ({ values, names: words }) => (words ? words[values[until - 1]] : plain(values[until - 1]));
  const y = (i, t) => STRIP - 4 - (knobs[i].values[t] / knobs[i].high) * (STRIP - 8);
  const lines = knobs.map((_, i) => {
    const path = Array.from({ length: until }, (_, t) => `${((t / steps) * width).toFixed(1)},${y(i, t).toFixed(1)} ${(((t + 1) / steps) * width).toFixed(1)},${y(i, t).toFixed(1)}`);
    return `<polyline style="stroke:var(--${"ab"[i]})" points="${path.join(" ")}"/>`;
  });
  const now = knobs.map((knob, i) => `<b style="color:var(--${"ab"[i]})">${text(knob)}</b>`);
  return `<div class="strip"><span>${name}</span><svg viewBox="0 0 ${width} ${STRIP}" height="${STRIP}" preserveAspectRatio="none" aria-hidden="true">${lines.reverse().join("")}</svg><span class="values">${now.join("")}</span></div>`;
}

function draw() {
  const until = Number(byId("at").value), shown = lanes(), { episode } = shown[0];
  const room = byId("charts").clientWidth, columns = room > 900 ? 3 : room > 560 ? 2 : 1;
  const width = Math.floor((room - (columns - 1) * 10) / columns) - 18;
  byId("charts").style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
  byId("now").textContent = `${plain(until * episode.window_s)} of ${plain(episode.reward.length * episode.window_s)} s`;
  byId("seed").textContent = `Seed ${episode.seed}, the first official one.`;
  byId("key").innerHTML = shown.map(({ name }, i) => `<span><i style="background:var(--${"ab"[i]})"></i>${name}</span>`).join("");
  byId("charts").innerHTML = CHARTS.map((one) => chart(one, shown, until, width)).join("");
  byId("strips").innerHTML = Object.keys(episode.knobs).map((name) => strip(name, shown, until, 400)).join("");
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

// Show an episode from its beginning, or whole where no motion is wanted.
function begin() {
  stop();
  const steps = episodes[file][byId("task").value].reward.length;
  byId("at").max = steps;
  byId("at").value = steps;
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) draw();
  else play();
  history.replaceState(null, "", `#${file}/${byId("task").value}`);
}

function open(pressed, task) {
  file = pressed;
  const tasks = Object.keys(episodes[file]);
  const rivals = Object.keys(episodes).filter((one) => one !== file && tasks.every((id) => episodes[one][id]));
  const usual = rivals.find((one) => names[one] === "vllm_defaults") ?? rivals.find((one) => names[one] === "default_knobs") ?? "";
  byId("who").textContent = names[file];
  byId("task").innerHTML = tasks.map((id) => `<option>${id}</option>`).join("");
  // The core suite has its hardest task last.
  byId("task").value = tasks.includes(task) ? task : tasks.at(-1);
  byId("against").innerHTML = '<option value="">nobody</option>' + rivals.map((one) => `<option value="${one}">${names[one]}</option>`).join("");
  byId("against").value = usual;
  if (!byId("watch").open) byId("watch").showModal();
  begin();
}

for (const button of document.querySelectorAll("button.watch")) button.addEventListener("click", () => open(button.dataset.file));
byId("task").addEventListener("change", begin);
byId("against").addEventListener("change", draw);
byId("at").addEventListener("input", () => { stop(); draw(); });
byId("play").addEventListener("click", () => (timer ? stop() : play()));
byId("watch").addEventListener("close", () => { stop(); history.replaceState(null, "", location.pathname + location.search); });
window.addEventListener("resize", () => { if (byId("watch").open) draw(); });

// A link to an episode opens it.
function follow() {
  const [linked, task] = decodeURIComponent(location.hash.slice(1)).split("/");
  if (Object.hasOwn(episodes, linked)) open(linked, task);
}
window.addEventListener("hashchange", follow);
follow();
