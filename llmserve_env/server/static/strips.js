// The knobs over time: one strip per knob that acts in the task, with the settings of both players.
import { Canvas } from "./canvas.js";
import { label, rounded } from "./format.js";
import { drawPlot } from "./plot.js";

// How a knob's wire values become heights and text.
export function knobScale(field) {
  if (field.enum) return { of: (value) => field.enum.indexOf(value), low: 0, high: field.enum.length - 1, text: String };
  const type = field.type ?? field.anyOf?.find((one) => one.type !== "null")?.type;
  if (type === "boolean") return { of: Number, low: 0, high: 1, text: (value) => (value ? "on" : "off") };
  const isLog = type === "integer" && field.maximum / Math.max(field.minimum, 1) >= 64;
  return {
    of: (value) => value ?? field.maximum,
    low: field.minimum,
    high: field.maximum,
    isLog,
    text: (value) => (value === null ? "as started" : rounded(value)),
  };
}

// The plot of one knob; the clip draws it too.
export function stripOf(name, field, match, time, colours) {
  const { of, low, high, isLog } = knobScale(field);
  const margin = isLog ? 1 : (high - low) * 0.08;
  const lines = match.lanes.map((lane, i) => ({
    values: lane.rows.slice(0, time).map((row) => of(row.action[name])),
    colour: colours["ab"[i]],
    isStepped: true,
  }));
  return {
    steps: match.steps,
    low: isLog ? low / 1.4 : low - margin,
    high: isLog ? high * 1.4 : high + margin,
    isLog,
    isBare: true,
    bursts: match.bursts(time),
    lines: lines.reverse(),
  };
}

export class Strips {
  constructor(parent, schema, onHover) {
    this.schema = schema;
    this.strips = Object.entries(schema.properties).map(([name, field]) => this.make(parent, name, field, onHover));
  }

  make(parent, name, field, onHover) {
    const row = document.createElement("div");
    row.className = "strip";
    row.innerHTML = `<span class="name">${label(name)}</span><span class="values"></span>`;
    const canvas = new Canvas(
      (pen, width, height, colours) => {
        if (!this.match || !this.match.task.active_knobs.includes(name)) return;
        const plot = stripOf(name, field, this.match, this.match.time, colours);
        drawPlot(pen, { x: 2, y: 3, width: width - 8, height: height - 6 }, { ...plot, cursor: this.cursor }, colours);
      },
      (x, width) => onHover(x === null ? null : (x - 2) / (width - 8)),
    );
    row.insertBefore(canvas.element, row.lastChild);
    parent.append(row);
    return { name, field, row, canvas };
  }

  show(match, at, cursor) {
    Object.assign(this, { match, cursor });
    for (const { name, field, row, canvas } of this.strips) {
      row.hidden = !match.task.active_knobs.includes(name);
      if (row.hidden) continue;
      const { text } = knobScale(field);
      const values = match.lanes.map((lane) => text(at ? lane.rows[at - 1].action[name] : field.default));
      row.lastChild.innerHTML = values.map((value, i) => `<b class="lane-${"ab"[i]}">${value}</b>`).join(" ");
      canvas.label = `${label(name)} over time: ${match.lanes.map((lane, i) => `${lane.title} ${values[i]}`).join(", ")}`;
      canvas.redraw();
    }
  }
}
