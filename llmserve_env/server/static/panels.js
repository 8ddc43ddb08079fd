// What the charts show, as data: groups of charts, each of one figure for both players.
import { dollars, hundredths, milliseconds, percent, whole } from "./format.js";

const seen = (name) => (row) => row.observation[name];
const count = (name) => (row) => row.observation.metadata.counts[name];
const term = (name) => (row) => row.observation.metadata.reward_terms[name];
const share = { low: 0, high: 1, format: percent };

export function sloLevels(task) {
  return Object.entries(task.slos)
    .filter(([, slo]) => slo.ttft_slo_ms !== null)
    .map(([name, slo]) => ({ at: slo.ttft_slo_ms, label: `${name.replaceAll("_", " ")} ${milliseconds(slo.ttft_slo_ms)}` }));
}

const memoryLevel = (task) => [{ at: task.memory_limit_gb, label: `limit ${task.memory_limit_gb} GB` }];

const SERVICE = [
  { title: "Traffic", unit: "requests arriving per step", of: count("arrived"), isShared: true, format: whole },
  { title: "First token", unit: "median; thin: p99", of: seen("p50_ttft_ms"), alsoOf: seen("p99_ttft_ms"),
    isLog: true, low: 10, levels: sloLevels, format: milliseconds },
  { title: "SLO met", unit: "last 10 steps", of: seen("slo_compliance_rate"), ...share },
  { title: "Waiting", unit: "requests in the queue", of: seen("queue_depth"), format: whole },
  { title: "Cost", unit: "USD since the start", of: seen("cost_so_far"), format: dollars },
  { title: "Reward", unit: "sum since the start", of: (row) => row.sums.reward, figure: hundredths, low: null },
];

const ENGINE = [
  { title: "Running", unit: "requests in batches", of: seen("active_requests"), format: whole },
  { title: "Throughput", unit: "output tokens/s", of: seen("throughput_tps") },
  { title: "Gap between tokens", unit: "median, ms", of: seen("p50_itl_ms") },
  { title: "KV cache", unit: "blocks in use", of: seen("kv_cache_occupancy"), ...share },
  { title: "GPU memory", unit: "GB, fullest GPU", of: seen("gpu_memory_used_gb"), levels: memoryLevel },
  { title: "Lost", unit: "turned away or gone", of: (row) => row.sums.lost, format: whole },
];

const REWARD = [
  { title: "Reward", unit: "per step", of: (row) => row.reward, low: -1, high: 1, figure: hundredths },
  { title: "Throughput", unit: "earns reward", of: term("throughput"), low: 0, high: 1, figure: hundredths },
  { title: "Latency", unit: "costs reward", of: term("latency"), low: 0, high: 1, figure: hundredths },
  { title: "Violations", unit: "cost reward", of: term("violations"), low: 0, high: 1, figure: hundredths },
  { title: "Cost", unit: "costs reward", of: term("cost"), low: 0, high: 1, figure: hundredths },
  { title: "Memory", unit: "costs reward", of: term("memory"), low: 0, high: 1, figure: hundredths },
];

// A group is offered where its figures exist; `needs` reads the first row of a match, if there is one yet.
export const GROUPS = [
  { id: "service", title: "Service", charts: SERVICE, needs: () => true },
  { id: "engine", title: "Engine", charts: ENGINE, needs: () => true },
  { id: "reward", title: "Reward", charts: REWARD, needs: () => true },
];

// The range of a chart's axis over what is shown of both players.
export function rangeOf(chart, rows, task) {
  const values = [chart.of, ...(chart.alsoOf ? [chart.alsoOf] : [])].flatMap((of) => rows.map(of)).filter(Number.isFinite);
  const room = chart.isLog ? 2.5 : 1.15;
  const levels = chart.levels ? chart.levels(task).map(({ at }) => at * room) : [];
  const top = Math.max(...values, ...levels, chart.isLog ? 100 : 0);
  const low = chart.low === null ? Math.min(0, ...values) : (chart.low ?? 0);
  return { low, high: chart.high ?? low + (top - low || 1) * 1.06 };
}
