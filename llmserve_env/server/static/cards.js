// The two players side by side: who they are, their figures now, and their requests as dots.
import { Canvas } from "./canvas.js";
import { capitalised, dollars, hundredths, percent, prose, whole } from "./format.js";

const DOT = 6;
const START = { number: 1, sums: { reward: 0, lost: 0, met: 1 }, observation: { queue_depth: 0, active_requests: 0, cost_so_far: 0 } };

const FIGURES = [
  { name: "SLO met", hint: "mean over the steps so far", of: (row) => row.sums.met / row.number, text: percent, isMoreBetter: true },
  { name: "Waiting", hint: "requests in the queue now", of: (row) => row.observation.queue_depth, text: whole },
  { name: "Lost", hint: "requests turned away, or whose clients left, so far", of: (row) => row.sums.lost, text: whole },
  { name: "Cost", hint: "USD so far", of: (row) => row.observation.cost_so_far, text: dollars },
  { name: "Reward", hint: "sum so far", of: (row) => row.sums.reward, text: hundredths, isMoreBetter: true },
];

class Card {
  constructor(element, index) {
    Object.assign(this, { element, index, row: START });
    this.does = element.querySelector(".does");
    this.list = element.querySelector("dl");
    this.score = element.querySelector(".score");
    this.canvas = new Canvas((...drawing) => this.drawDots(...drawing));
    this.canvas.element.className = "dots";
    element.append(this.canvas.element);
    this.list.innerHTML = FIGURES.map(({ name, hint }) => `<div title="${hint}"><dt>${name}</dt><dd></dd></div>`).join("");
  }

  // Dots from left to right: first those that run, then those that wait.
  drawDots(pen, width, height, colours) {
    const perColumn = Math.max(1, Math.floor(height / DOT));
    const { active_requests: running, queue_depth: waiting } = this.row.observation;
    const room = perColumn * Math.floor(width / DOT);
    for (let i = 0; i < Math.min(running + waiting, room); i += 1) {
      pen.fillStyle = i < running ? colours["ab"[this.index]] : colours.limit;
      const [x, y] = [Math.floor(i / perColumn) * DOT, (i % perColumn) * DOT];
      if (i < running) pen.fillRect(x, y, DOT - 2, DOT - 2);
      else {
        pen.beginPath();
        pen.arc(x + DOT / 2 - 1, y + DOT / 2 - 1, DOT / 2 - 1, 0, 2 * Math.PI);
        pen.fill();
      }
    }
  }

  show(lane, entry, row, other, isOver) {
    this.row = row;
    this.does.innerHTML = prose(capitalised(entry));
    FIGURES.forEach(({ of, text, isMoreBetter }, i) => {
      const [mine, theirs] = [of(row), of(other)];
      const cell = this.list.children[i].lastChild;
      cell.textContent = text(mine);
      cell.classList.toggle("better", text(mine) !== text(theirs) && mine > theirs === Boolean(isMoreBetter));
    });
    const score = isOver && lane.grade ? lane.grade.score : null;
    this.score.hidden = score === null;
    this.score.textContent = score === null ? "" : `Score ${(100 * score).toFixed(1)}`;
    const { active_requests: running, queue_depth: waiting } = row.observation;
    this.canvas.label = `${lane.title}: ${running} requests running, ${waiting} waiting`;
    this.canvas.redraw();
  }
}

export class Cards {
  constructor(elements) {
    this.cards = elements.map((element, i) => new Card(element, i));
  }

  // `describe` gives a player's description.
  show(match, at, describe) {
    const rows = match.lanes.map((lane) => (at ? lane.rows[at - 1] : START));
    this.cards.forEach((card, i) => card.show(match.lanes[i], describe(match.lanes[i]), rows[i], rows[1 - i], match.isOver));
  }
}
