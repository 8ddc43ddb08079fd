// The page's state as its address: task, seed, players, time, and the visitor's own moves.
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

// [[0, {a: 1, b: 2}], [9, {a: 3, b: 2}]] -> [[0, {a: 1, b: 2}], [9, {a: 3}]]
function onlyChanges(moves) {
  let before = {};
  return moves.map(([step, knobs]) => {
    const changed = Object.entries(knobs).filter(([name, value]) => before[name] !== value);
    before = knobs;
    return [step, Object.fromEntries(changed)];
  });
}

function withAllKnobs(changes) {
  let knobs = {};
  return changes.map(([step, changed]) => {
    knobs = { ...knobs, ...changed };
    return [step, knobs];
  });
}

function parsedMoves(text) {
  try {
    const moves = JSON.parse(text);
    const isValid = ([step, knobs]) => Number.isInteger(step) && step >= 0 && isObject(knobs);
    if (Array.isArray(moves) && moves.every(isValid)) return withAllKnobs(moves);
  } catch {
    // Falls through to the error.
  }
  throw new Error("The address holds moves that cannot be read; start a new episode.");
}

function parsedHead(text) {
  const [agent, steps] = text.split(":");
  return { agent, steps: Number(steps) };
}

export function encode(match) {
  const [a, b] = match.lanes;
  const fields = new URLSearchParams({ task: match.task.id, seed: match.seed, a: a.player, b: b.player, t: match.time });
  if (a.head) fields.set("head", `${a.head.agent}:${a.head.steps}`);
  if (a.moves.length) {
    fields.set("moves", JSON.stringify(onlyChanges(a.moves)));
    fields.set("played", a.rows.length);
  }
  return "?" + fields;
}

// What the address asks for; fields that it does not name are null.
export function decode(search) {
  const fields = new URLSearchParams(search);
  const number = (name) => (fields.has(name) ? Number(fields.get(name)) : null);
  return {
    task: fields.get("task"),
    seed: number("seed"),
    a: fields.get("a"),
    b: fields.get("b"),
    time: number("t"),
    head: fields.has("head") ? parsedHead(fields.get("head")) : null,
    moves: fields.has("moves") ? parsedMoves(fields.get("moves")) : [],
    played: number("played") ?? 0,
  };
}
