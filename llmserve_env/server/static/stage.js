// Everything that is drawn of a match: the players' cards, the charts of the chosen group, and the knobs over time.
import { Cards } from "./cards.js";
import { Chart } from "./chart.js";
import { GROUPS } from "./panels.js";
import { Strips } from "./strips.js";

export class Stage {
  constructor({ cards, groups, charts, strips }, schema, describe) {
    Object.assign(this, { groupsElement: groups, chartsElement: charts, describe, hover: null, match: null });
    this.cards = new Cards(cards);
    this.strips = new Strips(strips, schema, (share) => this.point(share));
    this.group = GROUPS[0];
    this.listGroups();
    this.makeCharts();
  }

  listGroups() {
    this.offered = GROUPS.filter((group) => group.needs(this.match?.lanes[0].rows[0]));
    const legend = this.groupsElement.querySelector("legend");
    this.groupsElement.replaceChildren(legend, ...this.offered.map((group) => {
      const label = document.createElement("label");
      label.innerHTML = `<input type="radio" name="group" value="${group.id}"><span>${group.title}</span>`;
      const input = label.firstChild;
      input.checked = group === this.group;
      input.addEventListener("change", () => this.choose(group));
      return label;
    }));
  }

  begin(match) {
    Object.assign(this, { match, hover: null });
    this.listGroups();
    if (!this.offered.includes(this.group)) this.choose(this.offered[0]);
  }

  choose(group) {
    this.group = group;
    this.makeCharts();
    if (this.match) this.show(this.match);
  }

  makeCharts() {
    this.charts = this.group.charts.map((chart) => new Chart(chart, (share) => this.point(share)));
    this.chartsElement.replaceChildren(...this.charts.map((chart) => chart.figure));
  }

  // The pointer over any chart shows the figures of that moment in all of them.
  point(share) {
    if (!this.match || !this.match.time) return;
    const at = share === null ? null : Math.round(share * this.match.steps);
    this.hover = at === null ? null : Math.max(1, Math.min(at, this.match.time));
    this.show(this.match);
  }

  show(match) {
    if (this.match !== match) this.begin(match);
    const at = Math.min(this.hover ?? match.time, match.time);
    const cursor = this.hover === null ? null : at;
    for (const chart of this.charts) chart.show(match, at, cursor);
    this.strips.show(match, at, cursor);
    this.cards.show(match, at, this.describe);
  }
}
