// The grades of both players in points of 100, and downloads.
import { escaped, label } from "./format.js";

const MAX_POINTS = 100;
const points = (value) => value.toFixed(1);

// Rows of the table: what each component could earn and what each player earned, all in points.
export function pointsOf(weights, grades) {
  return Object.entries(weights).map(([name, weight]) => ({
    name,
    most: MAX_POINTS * weight,
    earned: grades.map((grade) => MAX_POINTS * weight * grade.breakdown[name]),
  }));
}

function verdict(lanes, grades) {
  const [a, b] = grades.map((grade) => MAX_POINTS * grade.score);
  const names = lanes.map((lane) => lane.title);
  if (points(a) === points(b)) return `${names[0]} and ${names[1]} are level`;
  const [winner, loser] = a > b ? names : [...names].reverse();
  return winner === "You" ? `You beat ${loser} by ${points(a - b)} points` : `${winner} beats ${loser === "You" ? "you" : loser} by ${points(Math.abs(a - b))} points`;
}

export function showResult(panel, match, grades) {
  const { lanes, task } = match;
  const heads = lanes.map((lane, i) => `<th scope="col" class="lane-${"ab"[i]}">${escaped(lane.title)}</th>`).join("");
  const cells = (earned) => earned.map((value) => `<td>${points(value)}</td>`).join("");
  const rows = pointsOf(task.grader_weights, grades).map(
    ({ name, most, earned }) => `<tr><th scope="row">${escaped(label(name))}</th><td>${points(most)}</td>${cells(earned)}</tr>`,
  );
  const sums = cells(grades.map((grade) => MAX_POINTS * grade.score));
  panel.querySelector("h2").textContent = verdict(lanes, grades);
  panel.querySelector("table").innerHTML = `<caption>Points of 100, graded by replay</caption>
    <thead><tr><th scope="col">Component</th><th scope="col">Most</th>${heads}</tr></thead>
    <tbody>${rows.join("")}</tbody>
    <tfoot><tr><th scope="row">Score</th><td>${points(MAX_POINTS)}</td>${sums}</tr></tfoot>`;
  panel.querySelector("#feedback").innerHTML = lanes
    .map((lane, i) => `<p><b class="lane-${"ab"[i]}">${escaped(lane.title)}.</b> ${escaped(grades[i].feedback)}</p>`)
    .join("");
}

export function save(name, type, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

// Every figure of both players, one line per player and step.
export function csv(match) {
  const flat = (lane, row) => {
    const { metadata, priority_distribution, ...figures } = row.observation;
    const { counts } = metadata;
    return { player: lane.player, ...figures, ...counts, reward: row.reward, phase: row.phase, ...row.action };
  };
  const rows = match.lanes.flatMap((lane) => lane.rows.map((row) => flat(lane, row)));
  const names = Object.keys(rows[0]);
  return [names.join(","), ...rows.map((row) => names.map((name) => row[name]).join(","))].join("\n") + "\n";
}
