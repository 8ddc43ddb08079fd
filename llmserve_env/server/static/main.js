// The dashboard: one episode of this visitor's own, played by hand or by an agent of the server.
import * as api from "./api.js";
import { Knobs } from "./knobs.js";
import { csv, makeCharts, save, showGrade, showStatus } from "./panels.js";

const $ = (id) => document.getElementById(id);
const DELAY_MS = { slow: 500, normal: 125, fast: 0 };
const HEALTH_INTERVAL_MS = 500;
const BASELINE_AGENT = "static";
const episode = { session: null, task: null, rows: [], baseline: [], baselineSession: null, isDone: false };
let tasks = [];
let knobs = null;
let charts = [];
let isPlaying = false;
let isBusy = false;

function complain(error) {
  $("alert").textContent = error ? error.message : "";
  $("alert").hidden = !error;
}

// One call at a time: a second click waits for nothing, it is simply not taken.
async function exclusively(work) {
  if (isBusy) return;
  isBusy = true;
  $("dashboard").setAttribute("aria-busy", "true");
  try {
    complain(null);
    await work();
  } catch (error) {
    complain(error);
    setPlaying(false);
  } finally {
    isBusy = false;
    $("dashboard").setAttribute("aria-busy", "false");
    refresh();
  }
}

function setPlaying(value) {
  isPlaying = value;
  $("play").textContent = value ? "Pause" : "Play";
  $("play").setAttribute("aria-pressed", String(value));
}

function refresh() {
  const steps = episode.task ? episode.task.episode_length : 200;
  showStatus($("status"), episode.rows, steps);
  $("progress").max = steps;
  $("progress").value = episode.rows.length;
  for (const chart of charts) chart.show(episode.rows, $("compare").checked ? episode.baseline : [], steps, episode.task);
  for (const id of ["step", "play", "finish"]) $(id).disabled = !episode.session || episode.isDone;
}

const rowOf = (answer, action) => ({
  observation: answer.observation,
  reward: answer.reward,
  phase: answer.observation.metadata.phase,
  action,
});

async function begin() {
  setPlaying(false);
  const task = tasks.find((one) => one.id === $("task").value);
  const given = $("seed").value.trim();
  const answer = await api.reset(task.id, given === "" ? null : Number(given));
  Object.assign(episode, { session: answer.session_id, task, rows: [], baseline: [], baselineSession: null, isDone: false });
  $("grade").hidden = true;
  $("task-text").textContent = task.description;
  knobs.setTask(task, $("player").value !== "");
  const seed = (await api.state(answer.session_id)).seed;
  $("seed").value = seed;
  await compareWithBaseline(task, seed);
}

async function compareWithBaseline(task, seed) {
  if (!$("compare").checked) return;
  const { session_id } = await api.reset(task.id, seed);
  const played = await api.play(session_id, BASELINE_AGENT, task.episode_length);
  episode.baseline = played.steps.map((one) => rowOf(one, one.action));
  episode.baselineSession = session_id;
}

async function advance(count) {
  const player = $("player").value;
  if (player === "") {
    for (let i = 0; i < count && !episode.isDone; i += 1) {
      const action = knobs.action();
      const answer = await api.step(episode.session, action, episode.rows.length + 1);
      episode.rows.push(rowOf(answer, answer.observation.metadata.knobs));
      episode.isDone = answer.done;
    }
  } else {
    const played = await api.play(episode.session, player, count);
    for (const one of played.steps) {
      episode.rows.push(rowOf(one, one.observation.metadata.knobs));
      episode.isDone = one.done;
    }
    if (episode.rows.length) knobs.show(episode.rows[episode.rows.length - 1].action);
  }
  refresh();
  if (episode.isDone) await finishEpisode();
}

async function finishEpisode() {
  setPlaying(false);
  const grade = await api.grade(episode.session);
  const baseline = episode.baselineSession ? await api.grade(episode.baselineSession) : null;
  showGrade($("grade"), grade, baseline, $("player").value);
  $("save-log").addEventListener("click", () => exclusively(async () => {
    const log = await api.log(episode.session);
    save(`${log.task_id}-${log.seed}.json`, "application/json", JSON.stringify(log, null, 1));
  }));
  $("save-csv").addEventListener("click", () => save(`${episode.task.id}.csv`, "text/csv", csv(episode.rows)));
}

async function playOn() {
  if (isPlaying) {
    setPlaying(false);
    return;
  }
  setPlaying(true);
  while (isPlaying && !episode.isDone) {
    const speed = $("speed").value;
    await exclusively(() => advance(speed === "fast" ? 10 : 1));
    await new Promise((resolve) => setTimeout(resolve, DELAY_MS[speed]));
  }
  setPlaying(false);
}

async function listAgents() {
  const found = await api.agents($("task").value);
  const chosen = $("player").value;
  const options = found.map(({ name, is_available: ok }) => {
    const option = new Option(ok ? name : `${name} (not here)`, name);
    option.disabled = !ok;
    return option;
  });
  $("player").replaceChildren(new Option("you, with the knobs above", ""), ...options);
  $("player").value = found.some((one) => one.name === chosen && one.is_available) ? chosen : "";
}

function selectTab(name) {
  for (const one of ["dashboard", "console"]) {
    const isChosen = one === name;
    $("tab-" + one).setAttribute("aria-selected", String(isChosen));
    $("tab-" + one).tabIndex = isChosen ? 0 : -1;
    $(one).hidden = !isChosen;
  }
  const frame = document.querySelector("iframe");
  if (name === "console" && !frame.src) frame.src = api.base + frame.dataset.src;
  $("tab-" + name).focus();
}

function listen() {
  $("start").addEventListener("submit", (event) => { event.preventDefault(); exclusively(begin); });
  $("draw-seed").addEventListener("click", () => { $("seed").value = crypto.getRandomValues(new Uint32Array(1))[0]; });
  $("task").addEventListener("change", () => exclusively(async () => { await listAgents(); await begin(); }));
  $("player").addEventListener("change", () => knobs.setTask(episode.task, $("player").value !== ""));
  $("step").addEventListener("click", () => exclusively(() => advance(1)));
  $("finish").addEventListener("click", () => { setPlaying(false); exclusively(() => advance(episode.task.episode_length)); });
  $("play").addEventListener("click", playOn);
  $("compare").addEventListener("change", refresh);
  for (const name of ["dashboard", "console"]) $("tab-" + name).addEventListener("click", () => selectTab(name));
  document.querySelector("[role=tablist]").addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") selectTab($("dashboard").hidden ? "dashboard" : "console");
  });
  const keys = { s: "step", p: "play", e: "finish", n: "reset" };
  document.addEventListener("keydown", (event) => {
    const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey;
    const id = keys[event.key.toLowerCase()];
    if (!isTyping && id && !$("dashboard").hidden) $(id).click();
  });
}

// Says that the server is warming up, until it is ready.
async function untilReady() {
  while (!(await api.health()).ready) {
    $("warming").hidden = false;
    await new Promise((resolve) => setTimeout(resolve, HEALTH_INTERVAL_MS));
  }
  $("warming").hidden = true;
}

async function main() {
  await untilReady();
  const found = await api.tasks();
  tasks = found.tasks;
  $("task").replaceChildren(...tasks.map((task) => new Option(`${task.name} (${task.difficulty})`, task.id)));
  knobs = new Knobs($("knobs"), found.action_schema, () => {});
  charts = makeCharts($("charts"));
  listen();
  await listAgents();
  await begin();
}

exclusively(main);
