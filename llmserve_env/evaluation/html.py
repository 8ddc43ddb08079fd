"""A report in one HTML file: the table, and pictures embedded in it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from llmserve_env.agents.policy import GENERALIST, weights_folder
from llmserve_env.agents.registry import make_agent
from llmserve_env.evaluation.figures import (
    card_in,
    learning_figure,
    pareto_figure,
    png_uri,
    score_figure,
    timeline_figure,
)
from llmserve_env.evaluation.report import Provenance, Table, text_table
from llmserve_env.evaluation.rollout import EpisodeResult, play
from llmserve_env.tasks.catalog import load_task

BASELINE = "static"
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "img{max-width:100%}pre{overflow-x:auto;background:#f5f5f5;padding:1rem}h2{margin-top:2rem}"
)


def html_report(
    table: Table, results: Sequence[EpisodeResult], made: Provenance, timeline_agents: Sequence[str]
) -> str:
    """The whole page; `timeline_agents` play the first seed of each task once more, beside the baseline."""
    parts = [
        f"<p>Command <code>{escape(made.command)}</code>, seeds {made.seeds}, commit {escape(made.commit)}.</p>",
        f"<pre>{escape(text_table(table))}</pre>",
        "<h2>Scores</h2>" + _image(png_uri(score_figure(table)), "Scores with 95 % intervals"),
        "<h2>Cost against SLO attainment</h2>" + _image(png_uri(pareto_figure(results)), "Cost against SLO attainment"),
    ]
    tasks = list(made.task_versions)
    names = list(dict.fromkeys([BASELINE, *timeline_agents]))
    seed = min(result.seed for result in results)
    for name in tasks:
        episodes = {agent: play(make_agent(agent), load_task(name), [seed])[0] for agent in names}
        parts.append(f"<h2>Timeline: {escape(name)}</h2>" + _image(png_uri(timeline_figure(episodes)), "Timeline"))
    for name in [*tasks, GENERALIST]:
        if card := card_in(weights_folder() / name):
            parts.append(
                f"<h2>Learning curve: {escape(name)}</h2>" + _image(png_uri(learning_figure(card)), "Learning")
            )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>LLMServeEnv evaluation</title>'
        f"<style>{STYLE}</style></head><body><h1>LLMServeEnv evaluation</h1>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _image(uri: str, text: str) -> str:
    return f'<img alt="{escape(text)}" src="{uri}">'
