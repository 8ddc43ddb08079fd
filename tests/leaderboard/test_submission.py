"""Submissions: played on official seeds, verified by replay, refused with the reason when anything was changed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmserve_env.cli.main import main
from llmserve_env.errors import InvalidLogError, VersionMismatchError
from llmserve_env.evaluation.evaluate import evaluate
from llmserve_env.evaluation.seeds import REPORTED_SEEDS, SEED_RANGES
from llmserve_env.leaderboard.submission import AgentCard, Submission, read_submission, write_submission
from llmserve_env.leaderboard.verifying import verify
from llmserve_env.tasks.catalog import BENCHMARK, load_task
from tests.agents.own.examples import running_service, written

NUM_EPISODES = 2


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A submission of the documented example agent."""
    folder = tmp_path_factory.mktemp("submission")
    agent, path = written("my_agent.py", folder), folder / "mine.json"
    options = ["--name", "My agent", "--author", "me", "--episodes", str(NUM_EPISODES), "--output", str(path)]
    assert main(["submit", "--agent", f"{agent}:MyAgent", *options]) == 0
    return path


def test_official_seeds_are_public_and_reported_on_only() -> None:
    assert set(REPORTED_SEEDS) <= set(SEED_RANGES["evaluation"])
    assert len(REPORTED_SEEDS) == 20


def test_a_submission_verifies_to_the_scores_of_its_agent(entry: Path, capsys: pytest.CaptureFixture[str]) -> None:
    submission = read_submission(entry)
    verified = verify(submission)
    played = evaluate([submission.agent.played_as], [load_task(name) for name in BENCHMARK], REPORTED_SEEDS[:2])
    assert [score for scores in verified.scores.values() for score in scores] == [result.score for result in played]
    assert main(["verify", str(entry)]) == 0
    assert "verified, My agent on the core suite" in capsys.readouterr().out


def test_the_file_is_small_and_holds_no_observation(entry: Path) -> None:
    assert entry.stat().st_size < 10_000 * NUM_EPISODES * len(BENCHMARK)
    assert "queue_depth" not in entry.read_text(encoding="utf-8")


def test_playing_the_agent_again_shows_the_same_choices_and_fresh_scores(
    entry: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = read_submission(entry).agent.played_as
    assert main(["verify", str(entry), "--agent", agent]) == 0
    assert "chose the same actions in 6 of 6 episodes" in capsys.readouterr().out
    assert main(["verify", str(entry), "--agent", "static"]) == 2
    assert "in 0 of 6" in capsys.readouterr().out


def tampered(entry: Path, folder: Path, change: Callable[[Any], None], *, rehash: bool = True) -> Submission:
    """The submission after somebody has changed the file, with or without computing its hash again."""
    data = json.loads(entry.read_text(encoding="utf-8"))
    change(data)
    path = folder / "changed.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    found = read_submission(path)
    return found.hashed() if rehash else found


def an_action(data: Any) -> None:
    run = data["tasks"][1]["episodes"][0]["actions"][0]
    run[1][0] = 7


def an_action_without_effect(data: Any) -> None:
    """One more place in the last window's batch, which nothing fills."""
    runs = data["tasks"][0]["episodes"][0]["actions"]
    count, values = runs.pop()
    runs += [[count - 1, values]] if count > 1 else []
    runs.append([1, [values[0] + 1, *values[1:]]])


def package_version(data: Any) -> None:
    data["package_version"] = "9.9.9"


def a_record(data: Any) -> None:
    data["tasks"][0]["episodes"][0]["record"] = "0" * 64


def a_reward(data: Any) -> None:
    data["tasks"][2]["episodes"][1]["rewards"][99] += 0.01


def a_score(data: Any) -> None:
    data["tasks"][0]["episodes"][0]["score"] = 0.999


def another_seed(data: Any) -> None:
    data["tasks"][0]["episodes"][1]["seed"] = 12


def swapped_episodes(data: Any) -> None:
    first, second = data["tasks"][1]["episodes"]
    first["seed"], second["seed"] = second["seed"], first["seed"]
    data["tasks"][1]["episodes"] = [second, first]


def a_shorter_episode(data: Any) -> None:
    episode = data["tasks"][0]["episodes"][0]
    last = episode["actions"].pop()
    if last[0] > 1:
        episode["actions"].append([last[0] - 1, last[1]])
    episode["rewards"].pop()


def out_of_range(data: Any) -> None:
    data["tasks"][0]["episodes"][0]["actions"][0][1][1] = 1.5


def more_actions_than_memory_holds(data: Any) -> None:
    run = data["tasks"][0]["episodes"][0]["actions"][0]
    run[0] = 10**15


def an_episode_twice(data: Any) -> None:
    episodes = data["tasks"][0]["episodes"]
    episodes[1] = episodes[0]


def fewer_episodes_of_one_task(data: Any) -> None:
    data["tasks"][1]["episodes"].pop()


def reordered_tasks(data: Any) -> None:
    data["tasks"].reverse()


def a_missing_task(data: Any) -> None:
    data["tasks"].pop()


def environment_version(data: Any) -> None:
    data["environment_version"] = "0"


def task_version(data: Any) -> None:
    data["tasks"][0]["version"] = 99


def task_digest(data: Any) -> None:
    data["tasks"][0]["digest"] = "0" * 64


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (an_action, r"bursty_workload, seed 301000: step \d+ claims a reward of .* but its replay pays"),
        (an_action_without_effect, r"static_workload, seed 301000: all rewards fit, but .* an action that alters no"),
        (a_reward, r"adversarial_multitenant, seed 301001: step 100 claims a reward"),
        (a_score, r"static_workload, seed 301000: claims a score of 0.999, but its replay gives"),
        (another_seed, r"static_workload: the official seeds are 301000, .* episode 2 should have 301001, but has 12"),
        (swapped_episodes, r"bursty_workload, seed 301000: step \d+ claims a reward"),
        (a_shorter_episode, r"has 199 actions; an episode has 200"),
        (out_of_range, r"kv_budget_fraction must be a number from 0.1 to 1; got 1.5"),
        (more_actions_than_memory_holds, r"static_workload, seed 301000: has 1\d{15} actions; an episode has 200"),
        (an_episode_twice, r"static_workload: the official .* each once; episode 2 should have 301001, but has 301000"),
        (fewer_episodes_of_one_task, r"same number of episodes; got static_workload 2, bursty_workload 1, adv"),
        (reordered_tasks, r"the core suite has static_workload, .*; got adversarial_multitenant, bursty_workload"),
        (a_missing_task, r"the core suite has static_workload, bursty_workload, adversarial_multitenant; got"),
        (package_version, r"static_workload, seed 301000: .* the package's version or the record was changed"),
        (a_record, r"static_workload, seed 301000: .* the package's version or the record was changed"),
        (environment_version, r"played on environment '0'; here is"),
        (task_version, r"static_workload: played on version 99"),
        (task_digest, r"static_workload: played on version \d+ \(000000000000\)"),
    ],
)
def test_a_changed_submission_is_refused_with_the_reason(
    entry: Path, tmp_path: Path, change: Callable[[Any], None], reason: str
) -> None:
    with pytest.raises((InvalidLogError, VersionMismatchError), match=reason):
        verify(tampered(entry, tmp_path, change))


@pytest.mark.parametrize("change", [an_action, an_action_without_effect, a_reward, package_version, another_seed])
def test_a_change_without_a_new_hash_is_refused_before_any_replay(
    entry: Path, tmp_path: Path, change: Callable[[Any], None]
) -> None:
    with pytest.raises(InvalidLogError, match="changed after it was written"):
        verify(tampered(entry, tmp_path, change, rehash=False))


def test_the_command_says_what_does_not_fit(entry: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "forged.json"
    write_submission(tampered(entry, tmp_path, a_reward), path)
    assert main(["verify", str(path), str(entry)]) == 2
    printed = capsys.readouterr().out
    assert re.search(r"forged.json: REFUSED: adversarial_multitenant, seed 301001: step 100", printed)
    assert "mine.json: verified" in printed


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Invalid JSON"),
        ("[]", "is not a submission"),
        ('{"format": 1}', "format 2, submit again"),
        ('{"format": 2}', "agent"),
    ],
)
def test_a_file_that_is_no_submission_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "file.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidLogError, match=reason):
        read_submission(path)


@pytest.mark.parametrize(
    "field",
    [
        {"name": "<b>"},
        {"url": "javascript:alert(1)"},
        {"url": "https://a.example/)|[b](https://c.example"},
        {"url": 'https://a.example/"'},
        {"author": "a | b"},
        {"description": "one line\rand another"},
        {"played_as": "\x1b[2J"},
    ],
)
def test_a_card_that_could_break_the_page_is_refused(field: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(field))):
        AgentCard.model_validate({"name": "x", "played_as": "y", **field})


@pytest.mark.parametrize(
    ("field", "value"), [("date", "2026-02-31"), ("usage", {"calls": -1}), ("usage", {"a | b": 1})]
)
def test_a_day_that_is_none_and_counts_below_zero_are_refused(
    entry: Path, tmp_path: Path, field: str, value: object
) -> None:
    with pytest.raises(InvalidLogError, match=field):
        tampered(entry, tmp_path, lambda data: data.update({field: value}))


def test_a_ceiling_says_so() -> None:
    assert not AgentCard(name="a", played_as="tuned").sees_the_future


@pytest.mark.parametrize("episodes", ["0", "21"])
def test_only_official_seeds_can_be_submitted(tmp_path: Path, episodes: str) -> None:
    assert main(["submit", "--agent", "static", "--episodes", episodes, "--output", str(tmp_path / "x.json")]) == 2


def test_both_documented_agents_reach_the_leaderboard(entry: Path, tmp_path: Path) -> None:
    folder = tmp_path / "entries"
    folder.mkdir()
    (folder / "file.json").write_text(entry.read_text(encoding="utf-8"), encoding="utf-8")
    with running_service(tmp_path) as address:
        output = str(folder / "service.json")
        assert main(["submit", "--agent", address, "--name", "My service", "--episodes", "2", "-o", output]) == 0
    document, page = tmp_path / "board.md", tmp_path / "board.html"
    where = [str(folder), "--document", str(document), "--page", str(page)]
    assert main(["leaderboard", *where]) == 0
    for text in (document.read_text(encoding="utf-8"), page.read_text(encoding="utf-8")):
        assert "My agent" in text
        assert "My service" in text
        # They played two of twenty seeds.
        assert text.count("unranked") == 2
        assert "entries/service.json" in text
        assert "../" not in text
    assert main(["leaderboard", *where, "--check"]) == 0
    document.write_text("old", encoding="utf-8")
    assert main(["leaderboard", *where, "--check"]) == 2


def test_an_entry_that_does_not_fit_stops_the_leaderboard(entry: Path, tmp_path: Path) -> None:
    write_submission(tampered(entry, tmp_path, an_action), tmp_path / "entries" / "bad.json")
    assert main(["leaderboard", str(tmp_path / "entries"), "--check"]) == 2
