"""A fleet task: its file, checked, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError, model_validator

from llmserve_env.engine.deployment import Deployment
from llmserve_env.engine.fleet import NO_PARTNER, Pool
from llmserve_env.engine.tiers import TIER_NUMBERS
from llmserve_env.errors import ConfigError, InvalidActionError, ProfileError, UnknownTaskError
from llmserve_env.fleet.decision import FleetDecision
from llmserve_env.fleet.observation import feature_names
from llmserve_env.fleet.sections import BatchSpec, PoolSpec, PriceSpec, ReplicaSpec, SloSpec, TrafficSpec, ZoneSpec
from llmserve_env.fleet.series import RateSeries
from llmserve_env.fleet.traffic import Traffic, sample_traffic
from llmserve_env.profiles.memory import engine_memory
from llmserve_env.profiles.store import load_profile
from llmserve_env.tasks.files import FieldLines, read_mapping
from llmserve_env.units import s_to_ps
from llmserve_env.workloads.parts import Count, Name, Part, Positive
from llmserve_env.workloads.problems import LineOf, config_error

DATA = Path(__file__).parent / "data"
TASKS = ("elastic_fleet", "spot_hedge", "pd_pools", "elastic_plain")
"""The suite, in the order of its table."""
MIN_TOKEN_BUDGET = 256


class FleetTask(Part):
    """A versioned problem of replicas and dollars."""

    model_config = ConfigDict(ignored_types=(cached_property,))

    id: Name
    version: Count = 1
    name: Name
    description: str = ""
    steps: Annotated[int, Field(strict=True, ge=1, le=20_000)] = 720
    window_s: Positive = 30.0
    replica: ReplicaSpec
    pools: Annotated[tuple[PoolSpec, ...], Field(min_length=1, max_length=16)]
    zones: tuple[ZoneSpec, ...] = ()
    traffic_spec: TrafficSpec = Field(alias="traffic")
    batch: BatchSpec | None = None
    slo: SloSpec
    prices: PriceSpec
    pool_metrics: bool = False
    """Whether each pool's queue, running requests and KV use are seen, or only those of the whole fleet."""

    @model_validator(mode="after")
    def _parts_fit(self) -> FleetTask:
        names, zones = [pool.name for pool in self.pools], [zone.name for zone in self.zones]
        for what, found in (("pools", names), ("zones", zones)):
            if len(set(found)) < len(found):
                raise ValueError(f"{what}: every name once; got {', '.join(found)}")
        for pool in self.pools:
            self._pool_fits(pool, names, zones)
        if not any(pool.role != "prefill" for pool in self.pools):
            raise ValueError("pools: at least one must have the role any or decode")
        if self.replica.tier not in load_profile(self.replica.profile).tiers:
            known = ", ".join(load_profile(self.replica.profile).tiers)
            raise ValueError(
                f"replica.tier: {self.replica.profile} has no tier {self.replica.tier!r}; choose one of {known}"
            )
        return self

    def _pool_fits(self, pool: PoolSpec, names: list[str], zones: list[str]) -> None:
        if pool.zone is not None and pool.zone not in zones:
            known = ", ".join(zones) or "none is described"
            raise ValueError(f"pool {pool.name}: unknown zone {pool.zone!r}; known zones: {known}")
        if pool.partner is not None and (pool.partner not in names or pool.partner == pool.name):
            raise ValueError(
                f"pool {pool.name}: partner {pool.partner!r} is not another pool; pools: {', '.join(names)}"
            )
        if pool.boot.median_s >= self.steps * self.window_s:
            raise ValueError(
                f"pool {pool.name}: boot.median_s is {pool.boot.median_s:g} and an episode lasts "
                f"{self.steps * self.window_s:g} s: no launched replica would ever serve"
            )
        if pool.purchase not in self.prices.gpu_hour_usd:
            raise ValueError(f"prices.gpu_hour_usd lacks {pool.purchase}, which pool {pool.name} is bought as")

    @property
    def versioned_id(self) -> str:
        """The name that will always mean this version."""
        return f"{self.id}-v{self.version}"

    @property
    def pool_names(self) -> tuple[str, ...]:
        return tuple(pool.name for pool in self.pools)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the figures of an observation's vector."""
        return feature_names(self.pool_names, self.pool_metrics)

    @property
    def token_budgets(self) -> tuple[int, ...]:
        """Levels of the token budget from the least on, halved down from the engines' own."""
        budgets = [self.replica.token_budget]
        while budgets[-1] // 2 >= MIN_TOKEN_BUDGET:
            budgets.append(budgets[-1] // 2)
        return tuple(reversed(budgets))

    @property
    def length_s(self) -> float:
        """Of an episode."""
        return self.steps * self.window_s

    @cached_property
    def gpus_per_replica(self) -> int:
        return load_profile(self.replica.profile).gpus

    @cached_property
    def deployment(self) -> Deployment:
        """The fleet as the engine takes it."""
        spec, profile = self.replica, load_profile(self.replica.profile)
        costs, number = profile.costs(), TIER_NUMBERS[spec.tier]
        memory = engine_memory(profile, spec.tier, spec.token_budget, spec.max_running)
        return Deployment(
            costs=replace(costs, tiers={number: costs.tiers[number]}),
            num_replicas=sum(pool.max_replicas for pool in self.pools),
            memory_limit_bytes=memory.limit_bytes,
            activation_reserve_bytes=memory.reserve_bytes,
            block_tokens=spec.block_tokens,
            max_running=spec.max_running,
            token_budget=spec.token_budget,
            max_model_len=spec.max_model_len,
            prefix_caching=spec.prefix_caching,
            waiting_room=(1_000_000,) * 2,
            pools=tuple(self._engine_pool(pool) for pool in self.pools),
            affinity_slack=spec.affinity_slack,
        )

    def _engine_pool(self, pool: PoolSpec) -> Pool:
        partner = NO_PARTNER if pool.partner is None else self.pool_names.index(pool.partner)
        return Pool(
            max_replicas=pool.max_replicas,
            initial=pool.usual_replicas,
            role=pool.role,
            wake_ps=s_to_ps(pool.wake_s),
            drain_limit_ps=s_to_ps(pool.drain_limit_s),
            notice_ps=s_to_ps(pool.notice_s),
            partner=partner,
            flip_ps=s_to_ps(pool.flip_s),
        )

    def traffic(self, series: RateSeries, start_s: float, seed: int) -> Traffic:
        """The world of the episode that begins at `start_s` of the series."""
        if not 0.0 <= start_s <= series.length_s - self.length_s:
            raise ConfigError(
                f"start_s must be from 0 to {series.length_s - self.length_s:.0f}, so that an episode of "
                f"{self.length_s:g} s fits into {series.name}; got {start_s:.0f}"
            )
        return sample_traffic(self, series, start_s, seed)

    def default_decision(self) -> FleetDecision:
        """The usual fleet, all batch work at once, and the engines as they are started."""
        serving = tuple(pool.usual_replicas for pool in self.pools)
        return FleetDecision(serving, (0,) * len(self.pools), 0.0 if self.batch is None else 1.0, None)

    def check(self, decision: FleetDecision) -> None:
        """InvalidActionError unless the decision is one of this task's."""
        for field, counts in (("serving", decision.serving), ("asleep", decision.asleep)):
            if len(counts) != len(self.pools):
                raise InvalidActionError(
                    f"{field} needs {len(self.pools)} counts, for {', '.join(self.pool_names)}; got {len(counts)}"
                )
            for pool, count in zip(self.pools, counts, strict=True):
                low, high = (pool.min_replicas, pool.max_replicas) if field == "serving" else (0, pool.max_asleep)
                if isinstance(count, bool) or int(count) != count or not low <= count <= high:
                    raise InvalidActionError(
                        f"{field} of pool {pool.name} must be a whole number from {low} to {high}; got {count!r}"
                    )
        if not 0.0 <= decision.batch_share <= 1.0 or (decision.batch_share > 0.0 and self.batch is None):
            allowed = "0: this task has no batch work" if self.batch is None else "from 0 to 1"
            raise InvalidActionError(f"batch_share must be {allowed}; got {decision.batch_share!r}")
        budget, most = decision.token_budget, self.replica.token_budget
        if budget is not None and (int(budget) != budget or not MIN_TOKEN_BUDGET <= budget <= most):
            raise InvalidActionError(
                f"token_budget must be a whole number from {MIN_TOKEN_BUDGET} to {most}; got {budget!r}"
            )


def parse_fleet_task(data: Mapping[str, Any], where: str = "task", line_of: LineOf | None = None) -> FleetTask:
    """A validated task; ConfigError names each field that is wrong, with its line where it is known."""
    try:
        return FleetTask.model_validate(data)
    except ValidationError as error:
        raise config_error(error, data, where, line_of) from error
    except ProfileError as error:
        raise ConfigError(f"{where}: replica.profile: {error}") from error


def load_fleet_task(name: str | Path) -> FleetTask:
    """A task of the suite by its id, or one in a YAML file."""
    is_file = isinstance(name, Path) or str(name).endswith((".yaml", ".yml"))
    path = Path(name) if is_file else DATA / f"{name}.yaml"
    if not path.is_file():
        raise UnknownTaskError(
            f"there is no fleet task {str(name)!r}; known: {', '.join(TASKS)} (or the path of a YAML file)"
        )
    return _read(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=16)
def _read(path: Path, _changed_at_ns: int) -> FleetTask:
    return parse_fleet_task(read_mapping(path), str(path), FieldLines(path))
