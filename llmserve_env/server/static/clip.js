// A short recording of a match to share: the players, traffic, latency, SLO and knobs, as an animated GIF.
import { plotOf } from "./chart.js";
import { percent, dollars, label } from "./format.js";
import { Gif } from "./gif.js";
import { GROUPS } from "./panels.js";
import { drawPlot } from "./plot.js";
import { save } from "./result.js";
import { stripOf } from "./strips.js";
import { colours } from "./theme.js";

const [WIDTH, HEIGHT, MARGIN] = [800, 450, 20];
const NUM_FRAMES = 80;
const FRAME_MS = 90;
const LAST_MS = 3000;
const MAX_STRIPS = 3;
const CHARTS = GROUPS[0].charts.slice(0, 3);

const font = (size, weight = 400) => `${weight} ${size}px system-ui, sans-serif`;

function write(pen, text, x, y, { size = 13, weight = 400, colour, align = "left" }) {
  pen.font = font(size, weight);
  pen.fillStyle = colour;
  pen.textAlign = align;
  pen.textBaseline = "alphabetic";
  pen.fillText(text, x, y);
}

function drawPlayers(pen, match, time, c) {
  match.lanes.forEach((lane, i) => {
    const x = i ? WIDTH / 2 + 10 : MARGIN;
    const row = lane.rows[time - 1];
    const colour = c["ab"[i]];
    pen.fillStyle = colour;
    pen.fillRect(x, 42, WIDTH / 2 - MARGIN - 10, 3);
    write(pen, lane.title, x, 66, { size: 17, weight: 650, colour });
    const isLast = time === match.reached && lane.grade;
    const now = `SLO met ${percent(row.sums.met / row.number)}   cost ${dollars(row.observation.cost_so_far)}`;
    const end = x + WIDTH / 2 - MARGIN - 10;
    write(pen, isLast ? `Score ${(100 * lane.grade.score).toFixed(1)}` : now, end, 66, { size: isLast ? 17 : 13, weight: isLast ? 650 : 400, colour: c.ink, align: "right" });
  });
}

// The knobs that the players turn most, in the task's order.
function liveliest(match) {
  const turns = (name) => match.lanes.reduce((sum, { rows }) => sum + rows.filter((row, i) => i && row.action[name] !== rows[i - 1].action[name]).length, 0);
  const chosen = [...match.task.active_knobs].sort((a, b) => turns(b) - turns(a)).slice(0, MAX_STRIPS);
  return match.task.active_knobs.filter((name) => chosen.includes(name));
}

function drawFrame(pen, match, schema, time, c) {
  pen.fillStyle = c.surface;
  pen.fillRect(0, 0, WIDTH, HEIGHT);
  write(pen, `${match.task.name}, seed ${match.seed}`, MARGIN, 28, { size: 15, weight: 650, colour: c.ink });
  write(pen, `LLMServeEnv   ${Math.round(time * match.task.window_s)} s`, WIDTH - MARGIN, 28, { colour: c.muted, align: "right" });
  drawPlayers(pen, match, time, c);
  const wide = (WIDTH - 2 * MARGIN) / CHARTS.length;
  CHARTS.forEach((chart, i) => {
    const x = MARGIN + i * wide;
    write(pen, chart.title, x + 4, 96, { weight: 650, colour: c.ink });
    drawPlot(pen, { x: x + 40, y: 106, width: wide - 52, height: 150 }, plotOf(chart, match, time, c), c);
  });
  liveliest(match).forEach((name, i) => {
    const y = 294 + i * 48;
    write(pen, label(name), MARGIN + 4, y + 26, { colour: c.ink });
    drawPlot(pen, { x: 190, y, width: WIDTH - 190 - MARGIN, height: 38 }, stripOf(name, schema.properties[name], match, time, c), c);
  });
}

const nextTask = () => new Promise((resolve) => setTimeout(resolve));

// The clip of what has been played so far, as bytes. `onProgress` gets a share.
export async function makeClip(match, schema, onProgress) {
  const canvas = Object.assign(document.createElement("canvas"), { width: WIDTH, height: HEIGHT });
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  const c = colours();
  const frame = (time) => {
    drawFrame(pen, match, schema, time, c);
    return pen.getImageData(0, 0, WIDTH, HEIGHT);
  };
  const last = match.reached;
  const gif = new Gif(WIDTH, HEIGHT, [frame(Math.ceil(last / 2)), frame(last)]);
  const count = Math.min(NUM_FRAMES, last);
  for (let i = 1; i <= count; i += 1) {
    gif.add(frame(Math.round((i * last) / count)), i === count ? LAST_MS : FRAME_MS);
    onProgress(i / count);
    await nextTask();
  }
  return gif.finish();
}

export async function saveClip(match, schema, button, say) {
  if (!match.reached) throw new Error("There is nothing to record yet: play some steps first.");
  const title = button.textContent;
  button.disabled = true;
  try {
    const bytes = await makeClip(match, schema, (share) => { button.textContent = `Recording ${percent(share)}`; });
    save(`${match.task.id}-${match.seed}.gif`, "image/gif", bytes);
    say(`Saved a GIF of ${Math.round(bytes.length / 1000)} kB.`);
  } finally {
    button.textContent = title;
    button.disabled = false;
  }
}
