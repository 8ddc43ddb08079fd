"""What a task file says: a workload, a deployment, which knobs move, what is rewarded and how it is graded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from llmserve_env.arrays import Array
from llmserve_env.engine.costs import NO_HOST
from llmserve_env.engine.deployment import MAX_CLASSES, MAX_RUNNING, Deployment
from llmserve_env.engine.knobs import KNOBS, NAMES, Knob, changed_knobs, knobs_from_mapping
from llmserve_env.engine.tiers import TIER_NUMBERS
from llmserve_env.errors import ConfigError, ProfileError
from llmserve_env.profiles.host import load_host
from llmserve_env.profiles.memory import engine_memory
from llmserve_env.profiles.schema import Profile
from llmserve_env.profiles.store import load_profile
from llmserve_env.tasks.defaults import with_defaults
from llmserve_env.tasks.files import is_shipped
from llmserve_env.tasks.sections import MAX_STEPS, DeploymentSpec, GraderSpec, KnobSpec, RewardSpec
from llmserve_env.units import gb_to_bytes, s_to_ps
from llmserve_env.workloads.parts import Count, Name, Part, Positive
from llmserve_env.workloads.problems import LineOf, config_error
from llmserve_env.workloads.spec import WorkloadSpec

if TYPE_CHECKING:
    from llmserve_env.tasks.trace_workload import TraceWorkload


def _usable_in_paths(task_id: str) -> str:
    """A task's id names files and folders of results, so it must not lead out of them."""
    if task_id.startswith(".") or not task_id.isprintable() or any(sign in task_id for sign in "/\\:"):
        raise ValueError(f"must be a plain name without / \\ : or a leading dot; got {task_id!r}")
    return task_id


TaskId = Annotated[str, Field(strict=True, min_length=1, max_length=64), AfterValidator(_usable_in_paths)]
NOMINAL_SEQUENCES = 256
"""Sequences whose logits an engine's start-up profiling run makes room for (vLLM's default cap on such GPUs)."""


@dataclass(frozen=True, slots=True)
class TaskSource:
    """Where a task was read from."""

    file: Path
    trace: TraceWorkload | None = None
    """The workload section of a task that names a trace; `trace_workload.recording_of` reads the trace itself."""


class Task(Part):
    """A versioned problem."""

    model_config = ConfigDict(ignored_types=(cached_property,))

    id: TaskId
    version: Count = 1
    suite: Literal["core", "extended", "variants", "own"] = Field(default="own", exclude=True)
    """Which table a task belongs to (`files.suite_of`); no part of the problem, so no part of its digest."""
    number: Annotated[int, Field(strict=True, ge=0)] = 0
    """The short form of the id (`files.number_of`)."""
    name: Name
    difficulty: Literal["easy", "medium", "hard", "custom"] = "custom"
    description: str = ""
    teaches: str = ""
    steps: Annotated[int, Field(strict=True, ge=1, le=MAX_STEPS)] = 200
    window_s: Positive = 1.0
    workload: WorkloadSpec
    deployment: DeploymentSpec
    knobs: KnobSpec
    reward: RewardSpec
    grader: GraderSpec
    _source: TaskSource | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> Any:
        return with_defaults(data) if isinstance(data, Mapping) else data

    @model_validator(mode="after")
    def _parts_fit(self) -> Task:
        classes = set(self.workload.class_names)
        for where, names in (
            ("reward.class_weights", self.reward.class_weights),
            ("reward.quality", self.reward.quality),
        ):
            if set(names) != classes:
                raise ValueError(f"{where} must name exactly the classes {sorted(classes)}; got {sorted(names)}")
        if len(self.deployment.waiting_room) != len(classes):
            raise ValueError(
                f"deployment.waiting_room needs {len(classes)} figures, one per class; "
                f"got {len(self.deployment.waiting_room)}"
            )
        self._tiers_fit()
        unknown = set(self.knobs.dwell_steps) - set(NAMES)
        if unknown:
            raise ValueError(f"knobs.dwell_steps: unknown {sorted(unknown)}; allowed: {', '.join(NAMES)}")
        for knob in KNOBS:
            if knob.name in self.knobs.active and knob.needs and not getattr(self.deployment, knob.needs):
                raise ValueError(
                    f"{knob.name} is active, but deployment.{knob.needs} is 0: there is nothing to switch on"
                )
        if self.workload.horizon_s < self.steps * self.window_s:
            raise ValueError(
                f"workload.horizon_s must cover {self.steps * self.window_s:g} s of steps; "
                f"got {self.workload.horizon_s:g}"
            )
        return self

    def _tiers_fit(self) -> None:
        offered, known = self.deployment.tiers, load_profile(self.deployment.profile).tiers
        missing = [name for name in offered or () if name not in known]
        if missing:
            raise ValueError(
                f"deployment.tiers: {', '.join(missing)} not in {self.deployment.profile}, which has {', '.join(known)}"
            )
        count = len(offered or known)
        for name, quality in self.reward.quality.items():
            if len(quality) != count:
                raise ValueError(
                    f"reward.quality.{name} needs {count} figures, one per tier ({', '.join(offered or known)}); "
                    f"got {len(quality)}"
                )

    @property
    def source(self) -> TaskSource | None:
        """Where the task was read from; None for a task that was made in memory."""
        return self._source

    def remember_source(self, source: TaskSource) -> None:
        """Record where the task was read from."""
        self._source = source

    @property
    def file(self) -> Path | None:
        """The task's YAML file, which its references lie beside."""
        return None if self._source is None else self._source.file

    @property
    def own_file(self) -> Path | None:
        """The YAML file of a task that is not part of the package."""
        return None if self.file is None or is_shipped(self.file) else self.file

    @property
    def typed_name(self) -> str:
        """How commands name the task: by its file's name, or by its id if it is part of the package."""
        if self.own_file is not None:
            return self.own_file.name
        return self.id if self.file is None else self.file.stem

    @property
    def versioned_id(self) -> str:
        """The name that will always mean this version."""
        return f"{self.id}-v{self.version}"

    @property
    def gym_id(self) -> str:
        """Name in Gymnasium's registry; a new version whenever dynamics, reward or observation change."""
        return f"LLMServe/{self.versioned_id}"

    @cached_property
    def masked_knobs(self) -> tuple[str, ...]:
        """Knobs of the action that keep their defaults, whatever values it gives them."""
        return tuple(knob.name for knob in self.action_knobs if knob.name not in self.knobs.active)

    @cached_property
    def knob_table(self) -> tuple[Knob, ...]:
        """All knobs, within the limits of this deployment."""
        return tuple(knob.on(self.fleet) for knob in KNOBS)

    @cached_property
    def action_knobs(self) -> tuple[Knob, ...]:
        """The knobs that actions of this task have: all but the optional ones it does not activate."""
        return tuple(knob for knob in self.knob_table if not knob.is_optional or knob.name in self.knobs.active)

    @property
    def default_knobs(self) -> Array:
        """A new row of the knob matrix, as the engine starts."""
        return np.array([knob.default for knob in self.knob_table])

    def knobs_from_mapping(self, action: Mapping[str, Any]) -> Array:
        """A row of the knob matrix from wire names or aliases, within the limits of this deployment."""
        return knobs_from_mapping(action, self.knob_table)

    def knobs_from_partial(self, current: Array, action: Mapping[str, Any]) -> Array:
        """The knobs in force with those that an action names changed; the others keep their values."""
        return changed_knobs(current, action, self.knob_table)

    def check_limits(self, knobs: Array) -> None:
        """InvalidActionError if a row of the knob matrix exceeds what this deployment was started with."""
        values = knobs.tolist()
        for knob in self.limited_knobs:
            if not knob.allows(values[knob.column]):
                knob.number(knob.wire(values[knob.column]))

    @cached_property
    def limited_knobs(self) -> tuple[Knob, ...]:
        """Knobs whose range this deployment cuts."""
        return tuple(knob for knob, row in zip(self.knob_table, KNOBS, strict=True) if knob.levels != row.levels)

    @cached_property
    def _action_columns(self) -> Array:
        return np.array([knob.column for knob in self.action_knobs])

    def knobs_from_action(self, action: Sequence[float]) -> Array:
        """A row of the knob matrix from the values of `action_knobs`, as logs and journals keep them."""
        knobs = self.default_knobs
        knobs[self._action_columns] = action
        return knobs

    def action_from_knobs(self, knobs: Array) -> Array:
        """The values of `action_knobs` in rows of the knob matrix; defaults where a row leaves them open (NaN)."""
        whole = np.where(np.isnan(knobs), self.default_knobs, knobs)
        action: Array = whole[..., self._action_columns]
        return action

    @cached_property
    def window_ps(self) -> int:
        return s_to_ps(self.window_s)

    @cached_property
    def fleet(self) -> Deployment:
        """The deployment as the engine takes it."""
        spec, profile = self.deployment, load_profile(self.deployment.profile)
        costs = profile.costs()
        if spec.tiers is not None:
            costs = replace(costs, tiers={n: costs.tiers[n] for n in (TIER_NUMBERS[name] for name in spec.tiers)})
        if spec.price_usd_per_hour is not None:
            costs = replace(costs, price_usd_per_hour=spec.price_usd_per_hour * profile.gpus)
        host = None if spec.host is None else load_host(spec.host).for_model(profile.model)
        if host is not None:
            costs = host.gpu_costs(costs)
        room = tuple(spec.waiting_room)
        return Deployment(
            costs=costs,
            num_replicas=spec.replicas,
            num_prefill_replicas=spec.prefill_replicas,
            memory_limit_bytes=gb_to_bytes(spec.memory_limit_gb),
            activation_reserve_bytes=self._reserve_bytes(profile),
            token_budget=spec.token_budget,
            long_prefill_threshold=spec.long_prefill_threshold,
            max_model_len=spec.max_model_len,
            prefix_caching=spec.prefix_caching,
            async_scheduling=spec.schedules_ahead,
            host=NO_HOST if host is None else host.costs(spec.host_time_scale),
            waiting_room=room[:MAX_CLASSES],
            bring_up_ps=s_to_ps(spec.bring_up_s),
            restart_overhead_ps=s_to_ps(spec.restart_overhead_s),
            warm_up_at_cap=spec.warm_up_at_cap,
        )

    def _reserve_bytes(self, profile: Profile) -> int:
        """Memory that is set aside beside the weights before the KV pool is sized."""
        spec, model = self.deployment, profile.model
        if spec.gpu_memory_utilization is not None:
            tier = (spec.tiers or tuple(profile.tiers))[0]
            share = spec.gpu_memory_utilization
            return engine_memory(profile, tier, spec.token_budget, MAX_RUNNING, share).reserve_bytes
        working = spec.token_budget * model.activation_bytes_per_token
        return working + NOMINAL_SEQUENCES * model.logits_bytes_per_sequence


def parse_task(data: Mapping[str, Any], where: str = "task", line_of: LineOf | None = None) -> Task:
    """A validated task; ConfigError names each field that is wrong, with its line where it is known."""
    try:
        return Task.model_validate(data)
    except ValidationError as error:
        raise config_error(error, data, where, line_of) from error
    except ProfileError as error:
        section = data.get("deployment")
        field = ("deployment", "profile") if isinstance(section, Mapping) and "profile" in section else ("deployment",)
        line = f":{line_of(field)}" if line_of else ""
        raise ConfigError(f"{where}{line}: {'.'.join(field)}: {error}") from error
