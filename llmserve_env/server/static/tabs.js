// The page's views: the episode, and OpenEnv's console, which loads when it is first looked at.
import * as api from "./api.js";

export function startTabs() {
  const tabs = [...document.querySelectorAll("[role=tab]")];
  const select = (chosen) => {
    for (const tab of tabs) {
      const isChosen = tab === chosen;
      tab.setAttribute("aria-selected", String(isChosen));
      tab.tabIndex = isChosen ? 0 : -1;
      const panel = document.getElementById(tab.getAttribute("aria-controls"));
      panel.hidden = !isChosen;
      const frame = isChosen ? panel.querySelector("iframe[data-src]") : null;
      if (frame && !frame.src) frame.src = api.base + frame.dataset.src;
    }
    chosen.focus();
  };
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => select(tab));
    tab.addEventListener("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (move) select(tabs[(i + move + tabs.length) % tabs.length]);
    });
  });
}
