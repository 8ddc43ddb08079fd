// Play, pause, step and the time line. It decides when to move on; the page decides what that means.
const SECONDS_IN = (step, window_s) => `${Math.round(step * window_s)} s`;

export class Transport {
  // `advance` moves on by one step and returns whether there was one; `seek` jumps to a step.
  constructor(elements, { advance, seek, onPause }) {
    Object.assign(this, elements, { advance, seekTo: seek, onPause, isPlaying: false, run: 0 });
    this.play.addEventListener("click", () => this.toggle());
    this.step.addEventListener("click", () => this.once());
    this.end.addEventListener("click", () => this.jump(Number(this.line.max)));
    this.restart.addEventListener("click", () => this.jump(0));
    this.line.addEventListener("input", () => this.jump(Number(this.line.value)));
  }

  toggle() {
    if (this.isPlaying) this.pause();
    else this.start();
  }

  pause() {
    this.isPlaying = false;
    this.run += 1;
    this.label();
    this.onPause();
  }

  label() {
    this.play.textContent = this.isPlaying ? "Pause" : "Play";
    this.play.setAttribute("aria-pressed", String(this.isPlaying));
  }

  // One loop at a time: an older one sees that its number has passed.
  async start() {
    const run = (this.run += 1);
    this.isPlaying = true;
    this.label();
    let due = performance.now();
    while (run === this.run) {
      const hasMoved = await this.advance();
      if (run !== this.run) return;
      if (!hasMoved) return this.pause();
      due = Math.max(due + 1000 / Number(this.speed.value), performance.now());
      await new Promise((resolve) => setTimeout(resolve, due - performance.now()));
    }
  }

  async once() {
    if (this.isPlaying) this.pause();
    await this.advance();
    this.onPause();
  }

  async jump(step) {
    if (this.isPlaying) this.pause();
    await this.seekTo(step);
    this.onPause();
  }

  show(match) {
    const { steps, time, reached, task } = match;
    this.line.max = steps;
    this.line.value = time;
    this.line.style.setProperty("--done", `${(100 * time) / steps}%`);
    this.line.style.setProperty("--reached", `${(100 * reached) / steps}%`);
    this.line.setAttribute("aria-valuetext", `step ${time} of ${steps}`);
    this.clock.textContent = `${SECONDS_IN(time, task.window_s)} of ${SECONDS_IN(steps, task.window_s)}`;
    const isAtEnd = match.isOver;
    this.step.disabled = isAtEnd;
    this.play.disabled = isAtEnd;
    this.end.disabled = isAtEnd;
    this.restart.disabled = time === 0;
  }
}
