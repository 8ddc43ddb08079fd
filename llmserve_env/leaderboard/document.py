"""The leaderboard as a Markdown page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llmserve_env.evaluation.report import mean_text
from llmserve_env.evaluation.seeds import REPORTED_SEEDS
from llmserve_env.leaderboard.standings import Entry

INTRODUCTION = f"""# Leaderboard

Every entry is a file in [`leaderboard/`]({{entries}}) with an agent's actions on the official seeds
({REPORTED_SEEDS.start}..{REPORTED_SEEDS.stop - 1}). `make leaderboard` replays all of them and writes this page and
[leaderboard.html](leaderboard.html), where you can sort the table and watch an episode of every entry.
CI replays them again. A score is therefore what these actions earn, whatever a file claims. Replay does not prove
how the actions were found, and the official seeds are public. `llmserve verify FILE --agent AGENT` therefore plays
an agent again, on them and on fresh seeds, and shows whether it does as well there.

[own_agents.md](own_agents.md#submit-and-verify) explains how to enter. Scores are means over seeds with 95 % bootstrap
intervals; the first column is the mean over the tasks of the suite. Seeds differ in difficulty, so an entry that
does not cover all of them is listed without a rank.
"""


def leaderboard_document(suites: Mapping[str, Sequence[Entry]], folder: str) -> str:
    """The whole page; `folder` leads from it to the entries."""
    introduction = INTRODUCTION.format(entries=folder)
    return "\n".join([introduction, *(_suite(suite, entries, folder) for suite, entries in suites.items())])


def _suite(suite: str, entries: Sequence[Entry], folder: str) -> str:
    tasks = entries[0].submission.tasks
    header = ["rank", "agent", "score", *(f"`{task.id}` v{task.version}" for task in tasks), "episodes", "date", "file"]
    rows = [_row(entry, folder) for entry in entries]
    lines = [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]
    return f"## Suite `{suite}`\n\n" + "\n".join(lines) + "\n"


def _row(entry: Entry, folder: str) -> list[str]:
    agent = entry.agent
    name = f"[{agent.name}]({agent.url})" if agent.url else agent.name
    by = f" ({agent.author})" if agent.author else ""
    return [
        entry.place,
        name + by,
        mean_text(entry.score),
        *(mean_text(summary) for summary in entry.tasks.values()),
        str(entry.num_episodes),
        entry.submission.date,
        f"[{entry.file}]({folder}/{entry.file})",
    ]
