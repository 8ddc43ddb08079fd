// One chart of the page: a caption with the current figures of both players above a plot.
import { Canvas } from "./canvas.js";
import { rounded } from "./format.js";
import { rangeOf } from "./panels.js";
import { drawPlot } from "./plot.js";

const PAD = { left: 42, right: 6, top: 6, bottom: 18 };

// The plot of a chart as it stands after `time` steps; the clip draws it too.
export function plotOf(chart, match, time, colours) {
  const lanes = chart.isShared ? match.lanes.slice(0, 1) : match.lanes;
  const shown = lanes.map((lane) => lane.rows.slice(0, time));
  const colour = (i) => (chart.isShared ? colours.ink : colours["ab"[i]]);
  const lines = shown.map((rows, i) => ({
    values: rows.map(chart.of),
    colour: colour(i),
    width: chart.isShared ? 1.25 : 1.9,
    fill: chart.isShared ? colours.area : null,
  }));
  const thin = chart.alsoOf
    ? shown.map((rows, i) => ({ values: rows.map(chart.alsoOf), colour: colour(i), width: 0.8, isQuiet: true }))
    : [];
  return {
    steps: match.steps,
    window_s: match.task.window_s,
    ...rangeOf(chart, shown.flat(), match.task),
    isLog: chart.isLog,
    format: chart.format,
    levels: chart.levels ? chart.levels(match.task) : [],
    bursts: match.bursts(time),
    emptyText: "starts with the first step",
    // The first player is drawn last, on top.
    lines: [...thin, ...lines.reverse()],
  };
}

export class Chart {
  constructor(chart, onHover) {
    this.chart = chart;
    this.figure = document.createElement("figure");
    this.caption = document.createElement("figcaption");
    this.canvas = new Canvas((...drawing) => this.draw(...drawing), (x, width) => {
      const share = (x - PAD.left) / (width - PAD.left - PAD.right);
      onHover(x === null ? null : share);
    });
    this.figure.append(this.caption, this.canvas.element);
  }

  show(match, at, cursor) {
    Object.assign(this, { match, cursor });
    const { title, unit, of, format = rounded, figure: shown = format, isShared } = this.chart;
    const figures = match.lanes.slice(0, isShared ? 1 : 2).map((lane) => (at ? shown(of(lane.rows[at - 1])) : "–"));
    const marked = figures.map((figure, i) => `<b class="${isShared ? "" : "lane-" + "ab"[i]}">${figure}</b>`);
    this.caption.innerHTML = `<span class="what">${title} <small>${unit}</small></span><span class="now">${marked.join(" ")}</span>`;
    const spoken = figures.map((figure, i) => (isShared ? figure : `${match.lanes[i].title} ${figure}`));
    const limits = (this.chart.levels?.(match.task) ?? []).map(({ label }) => label);
    this.canvas.label = `${title}, ${unit}: ${spoken.join(", ")}${limits.length ? `; limits: ${limits.join(", ")}` : ""}`;
    this.canvas.redraw();
  }

  draw(pen, width, height, colours) {
    if (!this.match) return;
    const box = { x: PAD.left, y: PAD.top, width: width - PAD.left - PAD.right, height: height - PAD.top - PAD.bottom };
    const plot = plotOf(this.chart, this.match, this.match.time, colours);
    drawPlot(pen, box, { ...plot, cursor: this.cursor }, colours);
  }
}
