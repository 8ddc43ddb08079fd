// Figures and text as people read them.
export function rounded(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "none";
  const size = Math.abs(value);
  if (size >= 10000) return Math.round(value / 1000) + "k";
  if (size >= 100) return String(Math.round(value));
  if (size >= 10) return String(Math.round(value * 10) / 10);
  if (size === 0) return "0";
  return String(Number(value.toPrecision(2)));
}

// A reward, in hundredths at most: finer differences tell a person nothing.
export const hundredths = (value) => (Math.abs(value) < 1 ? rounded(Math.round(100 * value) / 100) : rounded(value));
export const percent = (share) => `${Math.round(100 * share)} %`;
export const dollars = (usd) => `$${usd.toFixed(usd < 10 ? 2 : 0)}`;
export const milliseconds = (ms) => (ms >= 1000 ? `${rounded(ms / 1000)} s` : `${ms >= 10 ? Math.round(ms) : rounded(ms)} ms`);
export const whole = (number) => Math.round(number).toLocaleString("en");

const ACRONYMS = { kv: "KV", slo: "SLO", ttft: "Time to first token", itl: "Gap between tokens" };

// The first letter of a sentence; "vLLM" keeps its own spelling.
export const capitalised = (text) => (/^[a-z][a-z ]/.test(text) ? text[0].toUpperCase() + text.slice(1) : text);

// "kv_budget_fraction" -> "KV budget fraction"
export function label(name) {
  const words = name.split("_").map((word) => ACRONYMS[word] ?? word).join(" ");
  return words[0].toUpperCase() + words.slice(1);
}

const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
export const escaped = (value) => String(value).replace(/[&<>"]/g, (c) => ENTITIES[c]);

// Text with `code` in backquotes, as HTML.
export const prose = (value) => escaped(value).replace(/`([^`]+)`/g, "<code>$1</code>");
