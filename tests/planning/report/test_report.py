"""The report says what was simulated, and needs nothing from elsewhere."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

from llmserve_env.agents.constant import tuned_knobs
from llmserve_env.evaluation.runner import Threads
from llmserve_env.planning.answer.objectives import objectives_of
from llmserve_env.planning.report.control_sections import adaptive_text
from llmserve_env.planning.report.controls import RECOMMENDED, VLLM, Setting, on_smaller_fleet
from llmserve_env.planning.report.gather import ReportData
from llmserve_env.planning.report.page import ABOUT_THE_FLEET, SECTIONS, headline, report_page, warnings
from llmserve_env.planning.report.policy import sentences, traffic_levels
from llmserve_env.planning.report.sensitivity import with_longer_prompts
from llmserve_env.tasks.variants import on_fleet, with_changes
from llmserve_env.workloads import sample

VOID = {"meta", "img", "br"}


class Balance(HTMLParser):
    """Collects addresses and checks that tags close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_self_contained(report_file: Path) -> None:
    text = report_file.read_text(encoding="utf-8")
    parser = Balance()
    parser.feed(text)
    assert parser.open == []
    assert all(address.startswith(("data:image/svg+xml;base64,", "#")) for address in parser.addresses)
    assert "<script" not in text and "://" not in re.sub(r"base64,[^\"]*", "", text)
    assert {f"#{name}" for name, _ in SECTIONS} <= set(parser.addresses)


def test_names_from_the_task_are_escaped(report_file: Path) -> None:
    assert "Traffic &amp; &lt;tags&gt;" in report_file.read_text(encoding="utf-8")


def test_the_same_figures_make_the_same_page(report_data: ReportData, report_file: Path) -> None:
    assert report_page(report_data, "llmserve report reported.yaml") == report_file.read_text(encoding="utf-8")


def test_the_headline_is_the_recommendation_as_it_did_on_fresh_traffic(report_data: ReportData) -> None:
    best = report_data.answer.recommended
    assert best is not None
    assert best.promises[0].value_text in headline(report_data)
    assert f"{best.usd_per_hour:.2f} USD per hour" in headline(report_data)


def test_a_fleet_that_breaks_its_promise_is_warned_of_in_red(report_data: ReportData) -> None:
    broken = report_data.answer.own.promises[0].model_copy(update={"value": 0.5, "is_kept": False})
    own = report_data.answer.own.model_copy(update={"promises": (broken,)})
    data = replace(report_data, answer=report_data.answer.model_copy(update={"own": own}))
    [warning] = warnings(data)
    assert "does not keep its promises" in warning
    page = report_page(data, "llmserve report reported.yaml").replace("&#x27;", "'")
    assert f'<p class="warning">{warning[:20]}' in page
    assert warnings(report_data) == []


def test_the_page_says_which_policies_can_be_deployed_and_which_is_a_bound(report_data: ReportData) -> None:
    kinds = {control.name: control.kind for control in report_data.controls.all}
    assert kinds[RECOMMENDED] == kinds[VLLM] == "constant"
    assert kinds["planner"] == "bound"
    assert report_data.controls.adaptive.kind == "deployable"
    assert "llmserve train reported.yaml" in report_data.controls.reason


def test_controls_are_compared_on_the_fresh_seeds(report_data: ReportData) -> None:
    seeds = {episode.seed for control in report_data.controls.all for episode in control.episodes}
    assert seeds == {400_000, 400_001}
    assert report_data.controls.recommended.found == report_data.answer.recommended


def test_the_constant_is_kept_for_the_tuned_agent(report_data: ReportData) -> None:
    task = report_data.task
    assert tuned_knobs(task).tolist() == task.knobs_from_mapping(report_data.answer.own.knobs).tolist()


def test_the_recording_is_replayed_and_compared(report_data: ReportData) -> None:
    assert report_data.recorded is not None
    assert report_data.recorded.replayed is not None
    assert report_data.recorded.fidelity.statistic("mean rps").error < 0.2


def test_what_a_lead_asks_about_is_simulated(report_data: ReportData) -> None:
    names = [one.name for one in report_data.sensitivity.scenarios]
    assert {"as expected", "20 % less traffic", "20 % more traffic", "twice the prompt length"} <= set(names)
    costs = [found.usd_per_million_output_tokens for _, found in report_data.sensitivity.loads]
    assert costs[0] > costs[-1], "the same GPUs write more tokens under more load"


def test_longer_prompts_stay_within_the_context_window(report_data: ReportData) -> None:
    task = with_changes(report_data.fleet, deployment={"max_model_len": 1_200})
    before, after = sample(task.workload, 1), with_longer_prompts(task, 1, 2.0)
    assert np.all(after.prompt_tokens >= before.prompt_tokens)
    assert np.all(after.prompt_tokens <= np.maximum(1_200 - before.output_tokens, before.prompt_tokens))
    assert np.any(after.prompt_tokens == 2 * before.prompt_tokens)


def test_the_policy_is_described_by_traffic_without_a_word_about_nothing(report_data: ReportData) -> None:
    levels = traffic_levels(report_data.controls.adaptive.episodes)
    assert [level.name for level in levels] == ["quiet", "usual", "busy"]
    assert levels[0].prompt_tps <= levels[1].prompt_tps <= levels[2].prompt_tps
    assert not any(" 0%" in sentence for sentence in sentences(report_data.task, levels))


def test_a_saved_replica_must_be_accepted_as_a_recommended_fleet_is(report_data: ReportData) -> None:
    kept = report_data.controls.adaptive.found
    cheaper = kept.model_copy(update={"usd_per_hour": kept.usd_per_hour / 2})
    lucky = replace(report_data.controls, smaller=cheaper, is_smaller_enough=False)
    assert lucky.saved_usd_per_hour == 0.0
    assert "is not enough with it either" in adaptive_text(lucky)
    enough = replace(lucky, is_smaller_enough=True)
    assert enough.saved_usd_per_hour == lucky.recommended.found.usd_per_hour - cheaper.usd_per_hour


def test_the_smaller_fleet_is_measured_on_the_traffic_of_the_search_first(report_data: ReportData) -> None:
    task = on_fleet(report_data.fleet, 2)
    hopeless = tuple(replace(one, limit_ms=0.1) for one in objectives_of(task, 0.95))
    setting = Setting(task, report_data.knobs, (3, 4), (1, 2), hopeless, 0.95, Threads(1))
    found, is_enough = on_smaller_fleet(setting, "heuristic")
    assert found is not None
    assert not is_enough
    assert found.replicas == 1


def test_without_a_recommendation_the_page_does_not_say_how_to_run_one(report_data: ReportData) -> None:
    answer = report_data.answer.model_copy(update={"recommended": None})
    page = report_page(replace(report_data, answer=answer), "llmserve report reported.yaml")
    assert "No fleet can be recommended" in page
    assert "vllm serve" not in page
    assert all(f'id="{name}"' not in page and f'"#{name}"' not in page for name in ABOUT_THE_FLEET)
    assert all(f'id="{name}"' in page for name in ("traffic", "capacity", "promises", "made"))
