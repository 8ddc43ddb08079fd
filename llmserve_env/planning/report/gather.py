"""Simulate what a report shows: traffic, capacity, the best constant, and an adaptive policy and what it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from llmserve_env.agents.constant import ConstantAgent, tuned_knobs
from llmserve_env.agents.policy import check_policy, load_policy, policy_folder
from llmserve_env.arrays import Array
from llmserve_env.env.episode import PlayedEpisode
from llmserve_env.errors import VersionMismatchError, WeightsNotFoundError
from llmserve_env.evaluation.play import play, play_agent
from llmserve_env.evaluation.report import commit_of
from llmserve_env.evaluation.runner import Runner, Threads
from llmserve_env.evaluation.seeds import SEED_RANGES
from llmserve_env.evaluation.statistics import Summary, summarise
from llmserve_env.graders import grade_episode
from llmserve_env.graders.references import reference_for
from llmserve_env.planning.capacity.checking import TaskCheck, active_tiers, check_task
from llmserve_env.planning.capacity.replicas import TARGET, TierCapacity, find_capacity
from llmserve_env.planning.freezing import ensure_references
from llmserve_env.planning.report.recorded import RecordedTraffic, recorded_traffic
from llmserve_env.planning.tuning.constants import Outcome, outcome_of, play_constants
from llmserve_env.planning.tuning.halving import Trial, halve
from llmserve_env.planning.tuning.recording import TunedConstant, record
from llmserve_env.tasks.task import Task

DEFAULTS, BEST_CONSTANT = "default knobs", "best constant"


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """How much is simulated."""

    target: float = TARGET
    num_episodes: int = 4
    """Evaluation seeds per control."""
    num_configurations: int = 64
    num_tuning_seeds: int = 6
    max_replicas: int = 64


@dataclass(frozen=True, slots=True)
class ControlResult:
    """One way of running the fleet, on the evaluation seeds."""

    name: str
    score: Summary
    outcome: Outcome
    episodes: tuple[PlayedEpisode, ...]


@dataclass(frozen=True, slots=True)
class ReportData:
    """What the page says."""

    task: Task
    options: ReportOptions
    check: TaskCheck
    capacity: tuple[TierCapacity, ...]
    constant: Array
    trials: tuple[Trial, ...]
    controls: tuple[ControlResult, ...]
    """The defaults, the best constant, then adaptive ones."""
    adaptive: ControlResult
    """The policy the page follows."""
    adaptive_reason: str
    recorded: RecordedTraffic | None
    seeds: str
    commit: str

    def control(self, name: str) -> ControlResult:
        """The control of that name."""
        return next(played for played in self.controls if played.name == name)


def gather(task: Task, options: ReportOptions, runner: Runner | None = None) -> ReportData:
    """Simulate the whole report; references and the constant of a task of your own are written beside it."""
    runner = runner or Threads()
    stage = runner.progress.stage
    stage("load and feasibility")
    check = check_task(task, runner=runner)
    stage("capacity")
    capacity = find_capacity(
        task,
        tiers=active_tiers(task),
        target=options.target,
        max_replicas=options.max_replicas,
        runner=runner,
    )
    stage("references")
    ensure_references(task, runner)
    stage("best constant")
    constant, trials = _best_constant(task, options, runner)
    stage("policies")
    seeds = SEED_RANGES["evaluation"][: options.num_episodes]
    controls = [_control(DEFAULTS, play_agent("default_knobs", task, seeds, runner))]
    controls.append(_control(BEST_CONSTANT, play(ConstantAgent(constant), task, seeds)))
    adaptive, reason = _adaptive(task, seeds, runner)
    controls += adaptive
    stage("recorded traffic")
    return ReportData(
        task=task,
        options=options,
        check=check,
        capacity=tuple(capacity),
        constant=constant,
        trials=trials,
        controls=tuple(controls),
        adaptive=adaptive[0],
        adaptive_reason=reason,
        recorded=recorded_traffic(task, constant),
        seeds=f"{seeds.start}..{seeds.stop - 1}",
        commit=commit_of(Path(__file__).resolve().parent),
    )


def _control(name: str, episodes: Sequence[PlayedEpisode]) -> ControlResult:
    scores = [float(grade_episode(episode).score) for episode in episodes]
    return ControlResult(name, summarise(scores), outcome_of(episodes), tuple(episodes))


def _best_constant(task: Task, options: ReportOptions, runner: Runner) -> tuple[Array, tuple[Trial, ...]]:
    """The better of a fresh search and the constant `llmserve tune` has kept."""
    reference = reference_for(task)
    found = halve(
        task,
        lambda outcome: outcome.score(task, reference),
        num_configurations=options.num_configurations,
        num_seeds=options.num_tuning_seeds,
        runner=runner,
    )
    try:
        kept = tuned_knobs(task)
    except (WeightsNotFoundError, VersionMismatchError):
        _keep(task, found.best, found.best.outcome.score(task, reference), options)
        return found.best.knobs, found.trials
    seeds = SEED_RANGES["tuning"][: options.num_tuning_seeds]
    known = Trial(kept, play_constants(task, kept[None], seeds, runner)[0], len(seeds))
    best = max(found.best, known, key=lambda trial: trial.outcome.score(task, reference))
    return best.knobs, (*found.trials, known)


def _keep(task: Task, best: Trial, score: float, options: ReportOptions) -> None:
    """Record the constant for the `tuned` agent and the planner; shipped tasks are tuned by `llmserve tune`."""
    if task.own_file is None:
        return
    command = (
        f"llmserve tune --task {task.typed_name} --method halving --trials {options.num_configurations} "
        f"--episodes {options.num_tuning_seeds}"
    )
    record(task, TunedConstant(best.knobs, score), command, options.num_configurations, options.num_tuning_seeds)


def _adaptive(task: Task, seeds: Sequence[int], runner: Runner) -> tuple[list[ControlResult], str]:
    """Policies that adapt, the one to follow first, and why it is that one."""
    heuristic = _control("heuristic", play_agent("heuristic", task, seeds, runner))
    folder = policy_folder(task.id)
    try:
        check_policy(load_policy(folder), task, folder)
    except (WeightsNotFoundError, VersionMismatchError):
        planner = _control("planner", play_agent("planner", task, seeds, runner))
        ranked = sorted((planner, heuristic), key=lambda played: -played.score.mean)
        return ranked, (
            f"No trained policy fits this task (llmserve train {task.typed_name} makes one), so the page follows "
            f"`{ranked[0].name}`, the better of the planner, which tries futures in the simulator, and the heuristic."
        )
    trained = _control("ppo", play_agent("ppo", task, seeds, runner))
    return [trained, heuristic], "The page follows `ppo`, the policy trained on this task."
