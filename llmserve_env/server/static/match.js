// Two players on the same task and seed, and how far the visitor has watched.
export class Match {
  constructor(task, seed, lanes) {
    Object.assign(this, { task, seed, lanes, time: 0, moving: Promise.resolve() });
    for (const lane of lanes) Object.assign(lane, { task, seed });
  }

  get steps() {
    return this.task.episode_length;
  }

  // The last step to which the visitor can jump: both players have got there.
  get reached() {
    return Math.min(...this.lanes.map((lane) => lane.rows.length));
  }

  get isOver() {
    return this.time > 0 && this.time >= this.reached && this.lanes.every((lane) => lane.isDone);
  }

  // One move after the other: two clicks are two steps, and a jump waits for the step before it.
  queue(move) {
    this.moving = this.moving.catch(() => {}).then(move);
    return this.moving;
  }

  // Moves on by one step; false at the end. `knobs` gives the visitor's settings if a step of theirs is needed.
  advance(knobs) {
    return this.queue(() => this.stepOn(knobs));
  }

  // Loads agents' rows up to a time and goes there, or as far as the visitor has played.
  goTo(time) {
    return this.queue(() => this.jump(time));
  }

  async stepOn(knobs) {
    const next = this.time + 1;
    const [first, second] = await Promise.all(this.lanes.map((lane) => lane.reach(next, knobs)));
    if (!first || !second) return false;
    this.time = next;
    for (const lane of this.lanes) lane.fetchAhead(next)?.catch(() => {});
    return true;
  }

  async jump(time) {
    const wanted = Math.min(time, this.steps);
    const agents = this.lanes.filter((lane) => !lane.isYou);
    await Promise.all(agents.map((lane) => lane.reach(wanted, null)));
    this.time = Math.max(0, Math.min(wanted, this.reached));
  }

  // Spans of steps in which the traffic bursts, up to a time.
  bursts(time) {
    const rows = this.lanes[0].rows.slice(0, time);
    const spans = [];
    rows.forEach((row, i) => {
      if (row.phase !== "burst") return;
      if (spans.length && spans.at(-1)[1] === i) spans.at(-1)[1] = i + 1;
      else spans.push([i, i + 1]);
    });
    return spans;
  }
}
