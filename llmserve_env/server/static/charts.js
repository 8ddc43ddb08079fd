// Small line charts on canvas: enough for a few hundred points, with bursts shaded and a baseline behind.
const PAD = { left: 46, right: 8, top: 8, bottom: 18 };

export function rounded(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size >= 10000) return Math.round(value / 1000) + "k";
  if (size >= 100) return String(Math.round(value));
  if (size >= 1) return String(Math.round(value * 10) / 10);
  if (size === 0) return "0";
  return String(Number(value.toPrecision(2)));
}

// Round marks from low to high, three to five of them.
function marksBetween(low, high) {
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const gap = power * [1, 2, 2.5, 5, 10].find((times) => times * power >= rough * 0.999);
  const first = Math.ceil(low / gap - 1e-9);
  return Array.from({ length: Math.floor(high / gap + 1e-9) - first + 1 }, (_, i) => (first + i) * gap);
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

export class Chart {
  // series: [{label, colour, of: (row) => number}], limit: (task) => number or null
  constructor(parent, { title, unit, series, limit, isLog = false, isWide = false, low = 0, high = null }) {
    Object.assign(this, { title, unit, series, limit, isLog, low, high, hover: null });
    const figure = document.createElement("figure");
    figure.classList.toggle("wide", isWide);
    this.caption = document.createElement("figcaption");
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("role", "img");
    figure.append(this.caption, this.canvas);
    parent.append(figure);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => { this.hover = null; this.draw(); });
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  show(rows, baseline, steps, task) {
    Object.assign(this, { rows, baseline, steps, limitAt: this.limit ? this.limit(task) : null });
    this.draw();
  }

  point(event) {
    if (!this.rows || !this.rows.length) return;
    const box = this.canvas.getBoundingClientRect();
    const share = (event.clientX - box.left - PAD.left) / (box.width - PAD.left - PAD.right);
    this.hover = Math.max(0, Math.min(this.rows.length - 1, Math.round(share * this.steps) - 1));
    this.draw();
  }

  range() {
    const values = [];
    for (const one of this.series) {
      for (const row of this.rows) values.push(one.of(row));
      if (one.hasBaseline !== false) for (const row of this.baseline.slice(0, this.rows.length)) values.push(one.of(row));
    }
    if (this.limitAt) values.push(this.limitAt * 1.15);
    const found = values.filter((value) => Number.isFinite(value));
    if (this.isLog) return [1, Math.max(...found, 10) * 1.2];
    return [this.low, this.high ?? this.low + (Math.max(...found, this.low) - this.low || 1) * 1.08];
  }

  caption_(row) {
    const legend = this.series.map((one) => {
      const text = row ? rounded(one.of(row)) : "–";
      return `<span style="color:${colour(one.colour)}">${one.label}</span> <b>${text}</b>`;
    });
    const beside = this.hover === null ? this.unit : `at step ${this.hover + 1}`;
    this.caption.innerHTML = `<span>${this.title} <small>${beside}</small></span><span class="legend">${legend.join(" · ")}</span>`;
    const spoken = this.series.map((one) => `${one.label} ${row ? rounded(one.of(row)) : "none"}`).join(", ");
    this.canvas.setAttribute("aria-label", `${this.title}, ${this.unit}: ${spoken}`);
  }

  draw() {
    if (!this.rows) return;
    const row = this.rows[this.hover ?? this.rows.length - 1];
    this.caption_(row);
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width) return;
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = width * scale;
    this.canvas.height = height * scale;
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    const [low, high] = this.range();
    const f = this.isLog ? (v) => Math.log(Math.max(v, low)) : (v) => v;
    const x = (step) => PAD.left + (step / this.steps) * (width - PAD.left - PAD.right);
    const y = (v) => height - PAD.bottom - ((f(v) - f(low)) / (f(high) - f(low))) * (height - PAD.top - PAD.bottom);
    this.shade(pen, x, height);
    this.grid(pen, x, y, low, high, width, height);
    if (this.limitAt) this.level(pen, x, y(this.limitAt));
    for (const one of this.series) {
      if (one.hasBaseline !== false) this.line(pen, this.baseline.slice(0, Math.max(this.rows.length, 1)), one.of, x, y, "baseline", true);
    }
    for (const one of this.series) this.line(pen, this.rows, one.of, x, y, one.colour, false);
    if (this.hover !== null) {
      pen.strokeStyle = colour("quiet");
      pen.beginPath();
      pen.moveTo(x(this.hover + 1), PAD.top);
      pen.lineTo(x(this.hover + 1), height - PAD.bottom);
      pen.stroke();
    }
  }

  shade(pen, x, height) {
    pen.fillStyle = colour("burst");
    const isBurst = (i) => i >= 0 && i < this.rows.length && this.rows[i].phase === "burst";
    let start = 0;
    for (let i = 0; i <= this.rows.length; i += 1) {
      if (isBurst(i) && !isBurst(i - 1)) start = i;
      if (!isBurst(i) && isBurst(i - 1)) pen.fillRect(x(start), PAD.top, x(i) - x(start), height - PAD.top - PAD.bottom);
    }
  }

  grid(pen, x, y, low, high, width, height) {
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = colour("quiet");
    pen.strokeStyle = colour("grid");
    pen.lineWidth = 1;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    const marks = this.isLog
      ? [1, 10, 100, 1000, 10000, 100000].filter((v) => v >= low && v <= high)
      : marksBetween(low, high);
    for (const mark of marks) {
      pen.beginPath();
      pen.moveTo(PAD.left, y(mark));
      pen.lineTo(width - PAD.right, y(mark));
      pen.stroke();
      pen.fillText(rounded(mark), PAD.left - 5, y(mark));
    }
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (let i = 0; i <= 4; i += 1) {
      const step = Math.round((this.steps * i) / 4);
      pen.fillText(String(step), Math.min(x(step), width - 12), height - PAD.bottom + 4);
    }
  }

  level(pen, x, at) {
    pen.strokeStyle = colour("limit");
    pen.lineWidth = 1.5;
    pen.setLineDash([6, 4]);
    pen.beginPath();
    pen.moveTo(x(0), at);
    pen.lineTo(x(this.steps), at);
    pen.stroke();
    pen.setLineDash([]);
  }

  line(pen, rows, of, x, y, name, isDashed) {
    if (!rows.length) return;
    pen.strokeStyle = colour(name);
    pen.lineWidth = isDashed ? 1.2 : 2;
    pen.setLineDash(isDashed ? [4, 3] : []);
    pen.beginPath();
    rows.forEach((row, i) => (i ? pen.lineTo(x(i + 1), y(of(row))) : pen.moveTo(x(1), y(of(row)))));
    pen.stroke();
    pen.setLineDash([]);
  }
}
