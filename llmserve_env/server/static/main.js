// The page: it opens a match of two players, plays it, and obeys the visitor.
import * as address from "./address.js";
import { Agents } from "./agents.js";
import * as api from "./api.js";
import { knobFields, Knobs } from "./knobs.js";
import { Lane, YOU } from "./lane.js";
import { Match } from "./match.js";
import { untilReady } from "./readiness.js";
import { showResult } from "./result.js";
import { startSharing } from "./share.js";
import { Stage } from "./stage.js";
import { startTabs } from "./tabs.js";
import { startTheme } from "./theme.js";
import { Transport } from "./transport.js";

const $ = (id) => document.getElementById(id);
const ADDRESS_INTERVAL_MS = 1000;
const SAID_MS = 5000;
const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
let tasks = [];
let agents = null;
let match = null;
let knobs = null;
let stage = null;
let transport = null;
let addressAt = 0;
let saying = 0;
let numUnderWay = 0;
let opening = { task: "", players: [] };

function complain(error) {
  $("alert").textContent = error ? error.message : "";
  $("alert").hidden = !error;
  if (error) $("alert").scrollIntoView({ block: "nearest" });
}

function say(words) {
  $("said").textContent = words;
  clearTimeout(saying);
  saying = setTimeout(() => { $("said").textContent = ""; }, SAID_MS);
}

function setBusy(change) {
  numUnderWay += change;
  $("dashboard").setAttribute("aria-busy", String(numUnderWay > 0));
}

// Work of the page; it says that it is busy, and shows what went wrong.
async function attempt(work) {
  setBusy(1);
  try {
    await work();
  } catch (error) {
    complain(error);
    transport.pause();
    if (match) fillForm();
  } finally {
    setBusy(-1);
  }
  render();
}

// The same for what the visitor asked for, which makes an older complaint obsolete.
function change(work) {
  complain(null);
  return attempt(work);
}

function render() {
  if (!match) return;
  stage.show(match);
  transport.show(match);
  const lane = match.lanes[0];
  const row = lane.rows[match.time - 1];
  const isYours = lane.isYou && match.time === lane.rows.length;
  if (!isYours && row) knobs.show(row.action);
  knobs.setTask(match.task, isYours && !lane.isDone);
  $("turning").textContent = lane.isYou ? "Your knobs" : `${lane.title} sets the knobs`;
  $("hint").hidden = !isYours || match.time > 0;
  $("take-over").hidden = isYours || match.isOver;
  $("take-over").textContent = lane.isYou ? "Play on from here" : "Take over from here";
  const hasResult = match.isOver && match.lanes.every((one) => one.grade);
  $("result").hidden = !hasResult;
  $("knob-panel").hidden = hasResult;
  $("show-knobs").textContent = hasResult ? "Result" : "Knobs";
}

// The address follows the match, though not at every step: browsers limit how often it may change.
function keepAddress(isNow = true) {
  if (!match || (!isNow && performance.now() - addressAt < ADDRESS_INTERVAL_MS)) return;
  addressAt = performance.now();
  history.replaceState(null, "", location.pathname + address.encode(match));
}

async function advance() {
  let hasMoved = false;
  await attempt(async () => {
    const current = match;
    hasMoved = await current.advance(() => knobs.action());
    if (current.isOver) await finish(current);
  });
  keepAddress(false);
  return hasMoved && !match.isOver;
}

async function finish(over) {
  const grades = await Promise.all(over.lanes.map((lane) => lane.graded()));
  showResult($("result"), over, grades);
}

const seek = (step) => attempt(async () => {
  const current = match;
  await current.goTo(step);
  // Played to the end by hand: the knobs as they are now are held.
  const you = current.lanes[0];
  while (you.isYou && step === current.steps && current.time < step && (await current.advance(() => knobs.action())));
  if (current.isOver) await finish(current);
});

// The choices as they are in force; what the visitor typed as a seed stays for correction.
function fillForm() {
  $("task").value = match.task.id;
  ["a", "b"].forEach((side, i) => agents.fill($("player-" + side), match.lanes[i].player, side === "a"));
  agents.describe($("agent-list"));
}

function show(chosen) {
  match = chosen;
  $("seed").value = match.seed;
  $("task-text").textContent = match.task.description;
  fillForm();
  if (match.lanes[0].isYou && !match.time) knobs.showDefaults();
  render();
}

// Starts a match; what `wanted` does not name is chosen here.
async function begin(wanted) {
  transport.pause();
  const taskId = wanted.task ?? opening.task;
  const task = tasks.find((one) => one.id === taskId);
  if (!task) throw new Error(`There is no task “${taskId}” here. Known: ${tasks.map((one) => one.id).join(", ")}.`);
  if (match?.task !== task) agents = await Agents.of(task.id);
  const [a, b] = [wanted.a ?? agents.firstOf([opening.players[0]]), wanted.b ?? agents.firstOf([opening.players[1]])];
  const mine = { head: wanted.head, moves: wanted.moves, played: wanted.played };
  const lanes = [new Lane(a, agents.entry(a).title, a === YOU ? mine : {}), new Lane(b, agents.entry(b).title)];
  await lanes[0].begin(task, wanted.seed);
  const seed = wanted.seed ?? (await lanes[0].drawnSeed());
  await lanes[1].begin(task, seed);
  const next = new Match(task, seed, lanes);
  await Promise.all(lanes.map((lane) => lane.fetchAhead(0)));
  if (wanted.time) await next.goTo(wanted.time);
  if (next.isOver) await finish(next);
  show(next);
  $("source").textContent = "Live simulation";
  keepAddress();
  if (a !== YOU && wanted.time === null && !isStill) transport.start();
}

const chosen = (changes) => ({ task: match.task.id, seed: match.seed, a: match.lanes[0].player, b: match.lanes[1].player, time: null, head: null, moves: [], played: 0, ...changes });

// The visitor goes on from the present step of the first player.
async function takeOver() {
  const { time, lanes: [lane] } = match;
  const head = lane.isYou ? lane.head : time ? { agent: lane.player, steps: time } : null;
  const moves = lane.moves.filter(([step]) => step < time);
  await begin(chosen({ a: YOU, time, head, moves, played: time }));
  if (time) knobs.show(match.lanes[0].rows[time - 1].action);
  document.body.classList.add("shows-knobs");
  render();
}

// A visitor who chooses a player keeps the moment, to compare them there.
function changePlayer(side) {
  const player = $("player-" + side).value;
  const time = player === YOU || match.lanes[0].isYou || match.isOver ? null : match.time || null;
  const wasPlaying = transport.isPlaying;
  change(async () => {
    await begin(chosen({ [side]: player, time }));
    if (wasPlaying && time !== null) transport.start();
  });
}

function listen() {
  $("setup").addEventListener("submit", (event) => {
    event.preventDefault();
    const given = $("seed").value.trim();
    change(() => begin(chosen({ seed: given === "" ? null : Number(given) })));
  });
  $("seed").addEventListener("change", () => $("setup").requestSubmit());
  $("new-seed").addEventListener("click", () => change(() => begin(chosen({ seed: null }))));
  $("task").addEventListener("change", () => change(() => begin(chosen({ task: $("task").value, a: null, b: null }))));
  for (const side of ["a", "b"]) $("player-" + side).addEventListener("change", () => changePlayer(side));
  $("take-over").addEventListener("click", () => change(takeOver));
  $("show-knobs").addEventListener("click", () => {
    if ($("result").hidden) document.body.classList.toggle("shows-knobs");
    else $("result").scrollIntoView();
  });
  $("about").addEventListener("click", () => $("about-dialog").showModal());
  document.addEventListener("keydown", (event) => {
    const taken = event.key === " " ? "input, select, button, a, dialog" : "input, select, dialog, [role=tab]";
    if (event.target.closest(taken) || event.ctrlKey || event.metaKey || event.altKey) return;
    const pressed = { " ": "play", ArrowRight: "step", Home: "restart", End: "end" }[event.key];
    if (!pressed) return;
    event.preventDefault();
    $(pressed).click();
  });
}

// The recorded episode needs no simulator, so it can be watched at once.
function openRecorded(recording) {
  tasks = [recording.task];
  agents = new Agents(recording.agents);
  const steps = recording.task.episode_length;
  const lanes = recording.lanes.map((lane) => Lane.recorded(lane, agents.entry(lane.agent).title, steps));
  $("task").replaceChildren(new Option(recording.task.name, recording.task.id));
  show(new Match(recording.task, recording.seed, lanes));
  if (isStill) seek(steps);
  else transport.start();
}

async function goLive() {
  const found = await api.tasks();
  tasks = found.tasks;
  $("task").replaceChildren(...tasks.map((task) => new Option(`${task.name} (${task.difficulty})`, task.id)));
  for (const control of document.querySelectorAll("[data-needs-server]")) control.disabled = false;
  if (!match) return;
  agents = await Agents.of(match.task.id);
  fillForm();
}

// What the address asks for; one that cannot be read asks for nothing.
function wish() {
  try {
    return address.decode(location.search);
  } catch (error) {
    complain(error);
    return address.decode("");
  }
}

async function main() {
  startTheme($("theme"));
  startTabs();
  const wanted = wish();
  const recording = await api.opening();
  opening = { task: recording.task.id, players: recording.lanes.map((lane) => lane.agent) };
  const schema = knobFields(recording.action_schema);
  knobs = new Knobs($("knobs"), schema, complain);
  stage = new Stage({ cards: [$("card-a"), $("card-b")], groups: $("groups"), charts: $("charts"), strips: $("strips") }, schema, (lane) => agents.entry(lane.player).does);
  transport = new Transport(
    { play: $("play"), step: $("step"), end: $("end"), restart: $("restart"), line: $("line"), clock: $("clock"), speed: $("speed") },
    { advance, seek, onPause: () => keepAddress() },
  );
  listen();
  startSharing(schema, { current: () => match, change, keepAddress, say });
  const hasOwnWish = [wanted.task, wanted.seed, wanted.a, wanted.b].some((asked) => asked !== null);
  const isReady = hasOwnWish && (await api.health().catch(() => ({}))).ready;
  if (!isReady) openRecorded(recording);
  await untilReady($("source"));
  await goLive();
  if (hasOwnWish) await change(() => begin(wanted));
  // An address that cannot be obeyed still leaves something to watch.
  if (!match) {
    openRecorded(recording);
    await goLive();
  }
}

main().catch(complain);
