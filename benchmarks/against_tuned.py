"""Trained policies against the best constant of each task, seed by seed: `python -m benchmarks.against_tuned`.

Each policy and the constant play the same seeds, so that the difference of their scores has a far narrower interval
than either score. The first rows are tasks that the policies were trained on; on the others the generalist plays tasks
that it has never seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.markdown import markdown_table
from llmserve_env.evaluation.evaluate import EpisodeResult, evaluate
from llmserve_env.evaluation.report import mean_text
from llmserve_env.evaluation.seeds import REPORTED_SEEDS
from llmserve_env.evaluation.statistics import Summary, summarise
from llmserve_env.tasks.catalog import SUITES, load_task

CONSTANT = "tuned"
POLICIES = {"core": ("ppo", "ppo_generalist"), "extended": ("ppo_generalist",)}
EPISODES = {"core": 20, "extended": 10}
HEADER = ("task", "policy", "its score", f"score of `{CONSTANT}`", "difference", "verdict")


def difference(policy: Sequence[EpisodeResult], constant: Sequence[EpisodeResult]) -> Summary:
    """Of the scores on the same seeds."""
    assert [one.seed for one in policy] == [one.seed for one in constant]
    return summarise([mine.score - theirs.score for mine, theirs in zip(policy, constant, strict=True)])


def verdict(found: Summary) -> str:
    """What the interval of a difference says."""
    low, high = found.ci95
    if low > 0.0:
        return "above"
    return "below" if high < 0.0 else "level"


def rows(suite: str) -> list[list[str]]:
    """A row per task and policy of a suite."""
    tasks = [load_task(name) for name in SUITES[suite]]
    results = evaluate((CONSTANT, *POLICIES[suite]), tasks, REPORTED_SEEDS[: EPISODES[suite]])
    found = []
    for task in tasks:
        constant = [one for one in results if (one.agent, one.task_id) == (CONSTANT, task.id)]
        for name in POLICIES[suite]:
            policy = [one for one in results if (one.agent, one.task_id) == (name, task.id)]
            gain = difference(policy, constant)
            scores = [mean_text(summarise([one.score for one in side])) for side in (policy, constant)]
            text = f"{gain.mean:+.3f} [{gain.ci95[0]:+.3f}, {gain.ci95[1]:+.3f}]"
            found.append([f"`{task.id}`", f"`{name}`", *scores, text, verdict(gain)])
    return found


def main() -> None:
    """Print both tables as one."""
    print(markdown_table(HEADER, [row for suite in POLICIES for row in rows(suite)]))
    seeds = "; ".join(f"{suite} suite, {count} seeds" for suite, count in EPISODES.items())
    print(f"\nMeans and 95 % bootstrap intervals over seeds from {REPORTED_SEEDS.start}: {seeds}.")


if __name__ == "__main__":
    main()
