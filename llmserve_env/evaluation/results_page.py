"""The results of an evaluation as one HTML file: the table and its plots."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from llmserve_env.agents.own.loading import load_agent
from llmserve_env.agents.policy import GENERALIST, policy_folder
from llmserve_env.evaluation.evaluate import EpisodeResult
from llmserve_env.evaluation.markup import page, paragraph, picture
from llmserve_env.evaluation.play import play
from llmserve_env.evaluation.plots import (
    card_in,
    learning_plot,
    pareto_plot,
    png_uri,
    score_plot,
    timeline_plot,
)
from llmserve_env.evaluation.report import Provenance, Summaries, latency_table, pool_requests, text_table
from llmserve_env.tasks.task import Task

BASELINE = "default_knobs"
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "img{max-width:100%}figure{margin:2rem 0}pre{overflow-x:auto;background:#f5f5f5;padding:1rem}"
)


def results_page(
    summaries: Summaries,
    results: Sequence[EpisodeResult],
    made: Provenance,
    tasks: Sequence[Task],
    agents: Sequence[str],
) -> str:
    """The whole page; the named agents play the first seed of each task again, beside the baseline."""
    parts = [
        "<h1>LLMServeEnv evaluation</h1>",
        paragraph(f"Command `{made.command}`, seeds {made.seeds}, commit {made.commit}."),
        f"<pre>{escape(text_table(summaries))}</pre>",
        f"<pre>{escape(latency_table(pool_requests(results)))}</pre>",
        picture(png_uri(score_plot(summaries)), "Scores with 95 % intervals"),
        picture(png_uri(pareto_plot(results)), "Cost against SLO attainment"),
    ]
    seed = min(result.seed for result in results)
    for task in tasks:
        episodes = {name: play(load_agent(name), task, [seed])[0] for name in dict.fromkeys([BASELINE, *agents])}
        parts.append(picture(png_uri(timeline_plot(episodes)), f"Timeline: {task.id}"))
    for name in [*(task.id for task in tasks), GENERALIST]:
        if card := card_in(policy_folder(name)):
            parts.append(picture(png_uri(learning_plot(card)), f"Learning curve: {name}"))
    return page("LLMServeEnv evaluation", STYLE, "\n".join(parts))
