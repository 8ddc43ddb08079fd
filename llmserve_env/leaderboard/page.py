"""The leaderboard as one HTML file that needs nothing from elsewhere: sortable tables, and an episode to watch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files

from llmserve_env.evaluation.markup import page, paragraph, section
from llmserve_env.evaluation.report import mean_text
from llmserve_env.evaluation.statistics import Summary
from llmserve_env.leaderboard.standings import Entry
from llmserve_env.leaderboard.watching import watched_episodes

UNRANKED = 10**6
"""Sort key of entries without a rank: behind all others."""
WATCH = """<dialog id="watch" aria-labelledby="title">
<div class="controls"><h2 id="title">An episode of <span id="who"></span></h2>
<label>task <select id="task"></select></label> <label>compared with <select id="against"></select></label>
<form method="dialog"><button>Close</button></form></div>
<div class="controls"><button id="play" type="button" autofocus>Play</button>
<label class="time">time <input id="at" type="range" min="1" value="1"></label> <output id="now"></output>
<span id="key"></span></div>
<div id="charts"></div><div id="strips"></div><p id="seed"></p></dialog>"""
LOGO = (
    '<svg viewBox="0 0 16 16" aria-hidden="true"><rect width="16" height="16" rx="4"/>'
    '<path d="M3 11l3-4 2.5 2.5L13 4"/></svg>'
)
HEADER = (
    f'<header><h1>{LOGO}LLMServeEnv leaderboard</h1><a href="own_agents.md#submit-and-verify">Enter your agent</a>'
    '<a href="tasks.md">The tasks</a></header>'
)


def leaderboard_page(suites: Mapping[str, Sequence[Entry]], folder: str) -> str:
    """The whole page; `folder` leads from it to the entries."""
    episodes = {entry.file: watched_episodes(entry.submission) for entries in suites.values() for entry in entries}
    body = [
        HEADER,
        paragraph(
            "Agents that set the serving configuration of a simulated GPU fleet, window by window. Scores, from 0 to "
            "1, are means over the official seeds with 95 % intervals, and every one is the result of replaying the "
            "submitted actions. Press a heading to sort by it, and an agent's name to watch it play.",
            "lead",
        ),
        *(
            section(f"suite-{suite}", f"{suite.capitalize()} suite", _table(entries, folder))
            for suite, entries in suites.items()
        ),
        WATCH,
        f'<script type="application/json" id="episodes">{_data(episodes)}</script>',
        f"<script>{_file('page.js')}</script>",
    ]
    return page("LLMServeEnv leaderboard", _file("page.css"), "\n".join(body))


def _data(episodes: Mapping[str, object]) -> str:
    # A closing tag inside the data would end the script.
    return json.dumps(episodes, separators=(",", ":")).replace("</", "<\\/")


def _file(name: str) -> str:
    return files("llmserve_env.leaderboard").joinpath(name).read_text(encoding="utf-8")


def _table(entries: Sequence[Entry], folder: str) -> str:
    tasks = [f"{task.id} v{task.version}" for task in entries[0].submission.tasks]
    header = ["rank", "agent", "score", *tasks, "episodes", "date", "file"]
    heads = "".join(f'<th aria-sort="none"><button type="button">{escape(name)}</button></th>' for name in header)
    rows = "".join(_row(entry, header, folder) for entry in entries)
    table = f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>"
    return f'<div class="scroll"><table class="sortable">{table}</table></div>'


def _row(entry: Entry, header: Sequence[str], folder: str) -> str:
    agent = entry.agent
    link = f' <a href="{escape(agent.url)}">link</a>' if agent.url else ""
    by = f"<small>{escape(' · '.join(filter(None, (agent.author, agent.description))))}{link}</small>"
    watch = f'<button class="watch" type="button" data-file="{escape(entry.file)}">{escape(agent.name)}</button>'
    file = f'<a href="{escape(folder)}/{escape(entry.file)}" aria-label="{escape(entry.file)}">JSON</a>'
    rank = UNRANKED if entry.rank is None else entry.rank
    cells = [
        _cell(rank, entry.place),
        _cell(agent.name.lower(), f"{watch}{by}"),
        *(_score(summary) for summary in (entry.score, *entry.tasks.values())),
        _cell(entry.num_episodes, str(entry.num_episodes)),
        _cell(entry.submission.date, entry.submission.date),
        _cell(entry.file, file),
    ]
    kind = ' class="ceiling"' if entry.rank is None else ""
    labelled = (f'<td data-label="{escape(name)}"{one}' for name, one in zip(header, cells, strict=True))
    return f"<tr{kind}>{''.join(labelled)}</tr>"


def _score(summary: Summary) -> str:
    mean, interval = mean_text(summary).split(" ", 1)
    low, high = summary.ci95
    places = f"--mean:{summary.mean:.1%};--low:{low:.1%};--high:{high:.1%}"
    bar = f'<i class="bar" style="{places}" aria-hidden="true"></i>'
    return _cell(round(summary.mean, 6), f"<span>{mean}</span> <span>{interval}</span>{bar}", "number")


def _cell(value: object, shown: str, kind: str = "") -> str:
    """A cell without the start of its tag, which the column completes with a label for narrow screens."""
    style = f' class="{kind}"' if kind else ""
    return f'{style} data-value="{escape(str(value))}">{shown}</td>'
