// What is drawn around the charts: the figures of the last step, the grade, and downloads.
import { Chart, rounded } from "./charts.js";

const total = (row) => row.reward;
const firstSlo = (task) => Math.min(...Object.values(task.slos).map((slo) => slo.ttft_slo_ms ?? Infinity));

export function makeCharts(parent) {
  const seen = (name) => (row) => row.observation[name];
  const term = (name) => (row) => row.observation.metadata.reward_terms[name];
  const count = (name) => (row) => row.observation.metadata.counts[name];
  return [
    new Chart(parent, { title: "Requests", unit: "per second", series: [
      { label: "arrived", colour: "purple", of: count("arrived"), hasBaseline: false },
      { label: "finished", colour: "blue", of: count("finished") }] }),
    new Chart(parent, { title: "Waiting and running", unit: "requests", series: [
      { label: "waiting", colour: "orange", of: seen("queue_depth") },
      { label: "running", colour: "blue", of: seen("active_requests"), hasBaseline: false }] }),
    new Chart(parent, { title: "Time to first token", unit: "ms, logarithmic", isLog: true, limit: firstSlo, series: [
      { label: "p50", colour: "blue", of: seen("p50_ttft_ms") },
      { label: "p99", colour: "orange", of: seen("p99_ttft_ms"), hasBaseline: false }] }),
    new Chart(parent, { title: "Gap between tokens", unit: "ms, median", series: [
      { label: "p50", colour: "blue", of: seen("p50_itl_ms") }] }),
    new Chart(parent, { title: "Throughput", unit: "tokens per second", series: [
      { label: "output", colour: "blue", of: seen("throughput_tps") }] }),
    new Chart(parent, { title: "SLO attainment", unit: "share of the last 10 s", high: 1, series: [
      { label: "met", colour: "green", of: seen("slo_compliance_rate") }] }),
    new Chart(parent, { title: "KV cache", unit: "share in use", high: 1, series: [
      { label: "used", colour: "purple", of: seen("kv_cache_occupancy") }] }),
    new Chart(parent, { title: "GPU memory", unit: "GB, fullest GPU", limit: (task) => task.memory_limit_gb, series: [
      { label: "peak", colour: "purple", of: seen("gpu_memory_used_gb") }] }),
    new Chart(parent, { title: "Cost", unit: "USD since the start", series: [
      { label: "spent", colour: "orange", of: seen("cost_so_far") }] }),
    new Chart(parent, { title: "Reward", unit: "per step", low: -1, high: 1, series: [
      { label: "reward", colour: "blue", of: total }] }),
    new Chart(parent, { title: "Reward terms", unit: "each from 0 to 1", high: 1, isWide: true, series: [
      { label: "throughput", colour: "green", of: term("throughput"), hasBaseline: false },
      { label: "latency", colour: "orange", of: term("latency"), hasBaseline: false },
      { label: "violations", colour: "limit", of: term("violations"), hasBaseline: false },
      { label: "cost", colour: "purple", of: term("cost"), hasBaseline: false },
      { label: "memory", colour: "sky", of: term("memory"), hasBaseline: false }] }),
  ];
}

export function showStatus(list, rows, steps) {
  const row = rows[rows.length - 1];
  const sum = rows.reduce((all, one) => all + one.reward, 0);
  const counts = (name) => rows.reduce((all, one) => all + one.observation.metadata.counts[name], 0);
  const figures = {
    Step: `${rows.length} of ${steps}`,
    Phase: row ? row.phase : "before the start",
    Reward: row ? row.reward.toFixed(3) : "–",
    "Sum of rewards": rows.length ? sum.toFixed(2) : "–",
    "SLO met": row ? Math.round(100 * row.observation.slo_compliance_rate) + " %" : "–",
    "Turned away": rows.length ? rounded(counts("rejected") + counts("abandoned")) : "–",
    "Cost so far": row ? "$" + row.observation.cost_so_far.toFixed(3) : "–",
  };
  list.innerHTML = Object.entries(figures).map(([name, value]) => `<div><dt>${name}</dt><dd>${value}</dd></div>`).join("");
}

const text = (value) => String(value).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

export function showGrade(panel, grade, baseline, player) {
  const parts = Object.keys(grade.breakdown).filter((name) => !name.endsWith("_raw"));
  const cell = (value) => `<td>${value === undefined ? "" : rounded(value)}</td>`;
  const rows = parts.map((name) => {
    const other = baseline ? cell(baseline.breakdown[name]) : "";
    const own = cell(grade.breakdown[name]) + cell(grade.breakdown[name + "_raw"]);
    return `<tr><th scope="row">${text(name.replaceAll("_", " "))}</th>${own}${other}</tr>`;
  });
  const head = ["", "score", "measured", ...(baseline ? ["vLLM’s defaults"] : [])].map((name) => `<th scope="col">${name}</th>`);
  const beside = baseline ? ` <span class="quiet">vLLM’s defaults: ${baseline.score.toFixed(3)}</span>` : "";
  panel.innerHTML = `<h2>Grade of ${text(player || "your episode")}</h2>
    <p><span class="score" id="score">${grade.score.toFixed(3)}</span> of 1${beside}</p>
    <p id="feedback">${text(grade.feedback)}</p>
    <table><thead><tr>${head.join("")}</tr></thead><tbody>${rows.join("")}</tbody></table>
    <div class="buttons"><button type="button" id="save-log">Download the log (JSON)</button>
    <button type="button" id="save-csv">Download the figures (CSV)</button></div>`;
  panel.hidden = false;
}

export function save(name, type, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

export function csv(rows) {
  if (!rows.length) return "";
  const flat = (row) => {
    const { metadata, priority_distribution, ...figures } = row.observation;
    return { ...figures, reward: row.reward, phase: row.phase, ...row.action };
  };
  const names = Object.keys(flat(rows[0]));
  return [names.join(","), ...rows.map((row) => names.map((name) => flat(row)[name]).join(","))].join("\n") + "\n";
}
