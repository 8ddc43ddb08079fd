// One player's episode: the rows it has produced so far, whoever turns the knobs.
import * as api from "./api.js";

export const YOU = "you";
const FIRST_STEPS = 20;
const AHEAD_STEPS = 40;

const rowOf = (answer) => ({
  observation: answer.observation,
  reward: answer.reward,
  phase: answer.observation.metadata.phase,
  action: answer.observation.metadata.knobs,
});

// {"observation.queue_depth": [0, 1], "reward": 0.1} -> rows; a column that never changes is its one value.
function rowsOf(columns, steps) {
  return Array.from({ length: steps }, (_, i) => {
    const row = {};
    for (const [path, values] of Object.entries(columns)) {
      const names = path.split(".");
      const last = names.pop();
      let target = row;
      for (const name of names) target = target[name] ??= {};
      target[last] = Array.isArray(values) ? values[i] : values;
    }
    return rowOf(row);
  });
}

export class Lane {
  // Of the visitor's own episode: `head` is an agent that played its first steps, `moves` lists [step, knobs from
  // there on], and `played` is the number of steps in which they were held.
  constructor(player, title, { head = null, moves = [], played = 0 } = {}) {
    Object.assign(this, { player, title, head, moves, played, rows: [], grade: null, session: null, isDone: false, pending: null });
  }

  static recorded({ agent, columns, grade }, title, steps) {
    const lane = new Lane(agent, title);
    for (const row of rowsOf(columns, steps)) lane.push(row);
    return Object.assign(lane, { grade, isDone: true });
  }

  get isYou() {
    return this.player === YOU;
  }

  push(row) {
    const before = this.rows.at(-1)?.sums ?? { reward: 0, lost: 0, met: 0 };
    const { counts: { rejected, abandoned }, reward_terms: { violations } } = row.observation.metadata;
    row.sums = { reward: before.reward + row.reward, lost: before.lost + rejected + abandoned, met: before.met + 1 - violations };
    row.number = this.rows.length + 1;
    this.rows.push(row);
  }

  // Opens a session, and brings it to where the visitor's part begins, or the whole of it if the moves are known.
  async begin(task, seed) {
    this.task = task;
    this.session = (await api.reset(task.id, seed)).session_id;
    if (this.head) await this.play(this.head.agent, this.head.steps);
    const moves = this.moves;
    this.moves = [];
    for (let i = 0; i < moves.length; i += 1) {
      const [step, knobs] = moves[i];
      const until = i + 1 < moves.length ? moves[i + 1][0] : Math.max(this.played, step + 1);
      while (this.rows.length < until && !this.isDone) await this.step(knobs);
    }
  }

  // The session's seed, which the server drew if none was given.
  async drawnSeed() {
    return (await api.state(this.session)).seed;
  }

  async play(agent, steps) {
    const { steps: played } = await api.play(this.session, agent, steps);
    for (const one of played) {
      this.push(rowOf(one));
      this.isDone = one.done;
    }
  }

  async step(knobs) {
    const answer = await api.step(this.session, knobs, this.rows.length + 1);
    const before = this.moves.at(-1)?.[1];
    if (JSON.stringify(before) !== JSON.stringify(knobs)) this.moves.push([this.rows.length, knobs]);
    this.push(rowOf(answer));
    this.isDone = answer.done;
  }

  // An agent's rows are fetched ahead of the playhead; those of a slow agent arrive a few at a time.
  fetchAhead(time) {
    const isEnough = this.isYou || this.isDone || this.rows.length >= Math.min(time + AHEAD_STEPS, this.task.episode_length);
    if (isEnough || this.pending) return this.pending;
    const steps = this.rows.length ? AHEAD_STEPS : FIRST_STEPS;
    this.pending = this.play(this.player, steps).finally(() => { this.pending = null; });
    return this.pending;
  }

  // Makes the row after `time` steps available; false if the episode ends before.
  async reach(time, knobs) {
    if (this.rows.length >= time) return true;
    if (this.isDone) return false;
    if (this.isYou) await this.step(knobs());
    else await this.fetchAhead(time);
    return this.rows.length >= time || (!this.isYou && this.reach(time, knobs));
  }

  async graded() {
    this.grade ??= await api.grade(await this.live());
    return this.grade;
  }

  // The session of this episode; a recorded episode is played again on the server to have one.
  async live() {
    if (this.session) return this.session;
    const again = new Lane(this.player, this.title);
    await again.begin(this.task, this.seed);
    while (!again.isDone) await again.play(this.player, AHEAD_STEPS);
    this.session = again.session;
    return this.session;
  }
}
