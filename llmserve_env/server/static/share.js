// What a visitor takes along: a link to this moment, the log, the figures, and a GIF.
import * as api from "./api.js";
import { saveClip } from "./clip.js";
import { csv, save } from "./result.js";

const $ = (id) => document.getElementById(id);

// Where the browser does not let the page copy, for example inside another page, the visitor copies by hand.
async function copyLink(say) {
  try {
    await navigator.clipboard.writeText(location.href);
    say("Link copied: it brings back this task, seed, players and moment.");
  } catch {
    $("link").value = location.href;
    $("link-dialog").showModal();
    $("link").focus();
    $("link").select();
  }
}

async function saveLog(match) {
  const log = await api.log(await match.lanes[0].live());
  save(`${match.task.id}-${match.seed}.json`, "application/json", JSON.stringify(log, null, 1));
}

// `current` gives the match, `change` runs work that may fail, `keepAddress` brings the address up to date.
export function startSharing(schema, { current, change, keepAddress, say }) {
  $("share").addEventListener("click", () => { keepAddress(); copyLink(say); });
  $("record").addEventListener("click", () => change(() => saveClip(current(), schema, $("record"), say)));
  $("save-log").addEventListener("click", () => change(() => saveLog(current())));
  $("save-csv").addEventListener("click", () => save(`${current().task.id}-${current().seed}.csv`, "text/csv", csv(current())));
}
