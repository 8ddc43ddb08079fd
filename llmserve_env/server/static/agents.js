// Who can play: the lists of players and the descriptions of all agents.
import * as api from "./api.js";
import { capitalised, escaped, prose } from "./format.js";
import { YOU } from "./lane.js";

const YOURS = { name: YOU, title: "You", does: "you set the knobs yourself, step by step or while time runs", sees: "this page", is_available: true, reason: "" };
const PREFERRED = ["ppo_generalist", "planner", "tuned"];

export class Agents {
  constructor(entries) {
    this.entries = [YOURS, ...entries];
  }

  static async of(task) {
    return new Agents(await api.agents(task));
  }

  entry(name) {
    const found = this.entries.find((one) => one.name === name);
    if (!found) throw new Error(`There is no player “${name}”. Known: ${this.entries.map((one) => one.name).join(", ")}.`);
    return found;
  }

  canPlay(name) {
    return this.entries.some((one) => one.name === name && one.is_available);
  }

  // The first of some names that can play this task.
  firstOf(names) {
    const others = this.entries.map((one) => one.name).filter((name) => name !== YOU);
    return [...names, ...PREFERRED, ...others].find((name) => this.canPlay(name));
  }

  fill(select, chosen, isYouOffered) {
    const offered = this.entries.filter((one) => isYouOffered || one.name !== YOU);
    select.replaceChildren(...offered.map((one) => {
      const option = new Option(one.is_available ? one.title : `${one.title} (cannot play here)`, one.name);
      option.disabled = !one.is_available;
      return option;
    }));
    select.value = chosen;
  }

  describe(list) {
    list.innerHTML = this.entries.map(({ title, does, sees, reason }) => `
      <div><dt>${escaped(title)}</dt>
      <dd><p>${prose(capitalised(does))}.</p><p class="quiet">Sees ${prose(sees)}.${reason ? ` Cannot play here: ${prose(reason)}` : ""}</p></dd></div>`).join("");
  }
}
