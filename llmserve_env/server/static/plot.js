// Draws one plot into a box of a canvas: values over the steps of an episode. It knows nothing of the page.
import { rounded, whole } from "./format.js";

const NARROW_PX = 180;

// Round marks from low to high, two to four of them.
export function marksBetween(low, high) {
  const rough = (high - low) / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const gap = power * [1, 2, 2.5, 5, 10].find((times) => times * power >= rough * 0.999);
  const first = Math.ceil(low / gap - 1e-9);
  return Array.from({ length: Math.floor(high / gap + 1e-9) - first + 1 }, (_, i) => (first + i) * gap);
}

function scales(box, { steps, low, high, isLog }) {
  const f = isLog ? (v) => Math.log10(Math.max(v, low)) : (v) => v;
  const span = f(high) - f(low) || 1;
  return {
    x: (step) => box.x + (step / steps) * box.width,
    y: (value) => box.y + box.height - ((Math.min(f(value), f(high)) - f(low)) / span) * box.height,
  };
}

function shadeBursts(pen, box, x, bursts, colour) {
  pen.fillStyle = colour;
  for (const [from, to] of bursts) pen.fillRect(x(from), box.y, x(to) - x(from), box.height);
}

function horizontal(pen, box, y, colour, dash = []) {
  pen.strokeStyle = colour;
  pen.lineWidth = 1;
  pen.setLineDash(dash);
  pen.beginPath();
  pen.moveTo(box.x, Math.round(y) + 0.5);
  pen.lineTo(box.x + box.width, Math.round(y) + 0.5);
  pen.stroke();
  pen.setLineDash([]);
}

function grid(pen, box, plot, { x, y }, colours) {
  const { low, high, isLog, steps, window_s = 1 } = plot;
  const marks = isLog ? [1, 10, 100, 1000, 10000, 100000].filter((v) => v >= low && v <= high) : marksBetween(low, high);
  // Half a request would be written as a whole one, beside the mark of the whole one.
  const shown = plot.format === whole ? marks.filter(Number.isInteger) : marks;
  pen.font = `${plot.fontSize ?? 10}px system-ui, sans-serif`;
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  for (const mark of shown) {
    horizontal(pen, box, y(mark), colours.line);
    pen.fillStyle = colours.muted;
    pen.fillText((plot.format ?? rounded)(mark), box.x - 5, y(mark));
  }
  pen.textBaseline = "top";
  const parts = box.width < NARROW_PX ? 2 : 4;
  for (let i = 0; i <= parts; i += 1) {
    const step = Math.round((steps * i) / parts);
    pen.textAlign = i === parts ? "right" : i === 0 ? "left" : "center";
    pen.fillText(rounded(step * window_s) + (i === parts ? " s" : ""), x(step), box.y + box.height + 4);
  }
}

// Limits with their names at the right end, which the lines reach last. A name stands above its line, below it if there is
// no room above, and left of the one before if there is no room at all.
function levels(pen, box, plot, y, colours) {
  pen.textAlign = "right";
  pen.textBaseline = "bottom";
  const height = (plot.fontSize ?? 10) + 2;
  const inSight = (plot.levels ?? []).filter(({ at }) => at <= plot.high && at >= plot.low).sort((a, b) => b.at - a.at);
  let [right, taken] = [box.x + box.width - 2, -Infinity];
  for (const { at } of inSight) horizontal(pen, box, y(at), colours.limit, [5, 4]);
  inSight.forEach(({ at, label }, i) => {
    const next = i + 1 < inSight.length ? y(inSight[i + 1].at) : box.y + box.height;
    const isAbove = y(at) - taken >= height;
    const isBelow = !isAbove && y(at) + 1 >= taken && next - y(at) > height;
    const bottom = isBelow ? y(at) + height : y(at) - 1;
    if (isAbove || isBelow) right = box.x + box.width - 2;
    // A halo keeps the name readable where lines cross it.
    pen.strokeStyle = colours.surface;
    pen.lineWidth = 3;
    pen.strokeText(label, right, bottom);
    pen.fillStyle = colours.limit;
    pen.fillText(label, right, bottom);
    right -= pen.measureText(label).width + 6;
    taken = Math.max(bottom, y(at));
  });
}

function trace(pen, values, { x, y }, isStepped) {
  pen.beginPath();
  let before = null;
  values.forEach((value, i) => {
    if (!Number.isFinite(value)) return;
    if (before === null) pen.moveTo(x(isStepped ? i : i + 1), y(value));
    else if (isStepped) pen.lineTo(x(i), y(value));
    pen.lineTo(x(i + 1), y(value));
    before = value;
  });
}

function line(pen, box, scale, { values, colour, width = 1.75, dash = [], isStepped = false, fill = null }) {
  if (!values.length) return;
  trace(pen, values, scale, isStepped);
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.lineJoin = "round";
  pen.setLineDash(dash);
  pen.stroke();
  pen.setLineDash([]);
  if (fill) {
    pen.lineTo(scale.x(values.length), box.y + box.height);
    pen.lineTo(scale.x(isStepped ? 0 : 1), box.y + box.height);
    pen.fillStyle = fill;
    pen.fill();
  }
}

// The newest point of a line, so that the eye finds where it is now.
function head(pen, scale, { values, colour }, at) {
  const value = values[at - 1];
  if (!Number.isFinite(value)) return;
  pen.fillStyle = colour;
  pen.beginPath();
  pen.arc(scale.x(at), scale.y(value), 3, 0, 2 * Math.PI);
  pen.fill();
}

// plot: {steps, low, high, lines, bursts, levels, cursor, isLog, isBare, format, window_s, emptyText}; box: {x, y, width, height}
export function drawPlot(pen, box, plot, colours) {
  const scale = scales(box, plot);
  shadeBursts(pen, box, scale.x, plot.bursts ?? [], colours.burst);
  if (plot.isBare) horizontal(pen, box, box.y + box.height, colours.line);
  else grid(pen, box, plot, scale, colours);
  for (const one of plot.lines) line(pen, box, scale, one);
  levels(pen, box, plot, scale.y, colours);
  if (plot.cursor) {
    pen.fillStyle = colours.muted;
    pen.fillRect(scale.x(plot.cursor) - 0.5, box.y, 1, box.height);
  }
  if (plot.emptyText && !plot.lines.some(({ values }) => values.length)) {
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    pen.strokeStyle = colours.surface;
    pen.lineWidth = 4;
    pen.strokeText(plot.emptyText, box.x + 8, box.y + box.height / 2);
    pen.fillStyle = colours.muted;
    pen.fillText(plot.emptyText, box.x + 8, box.y + box.height / 2);
  }
  for (const one of plot.lines) if (!one.isQuiet) head(pen, scale, one, plot.cursor ?? one.values.length);
}
