"""One episode: decisions in, observations and dollars out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from llmserve_env.errors import EpisodeStateError
from llmserve_env.fleet.decision import FleetDecision
from llmserve_env.fleet.dollars import Account, rental_usd
from llmserve_env.fleet.observation import MeteredPoolView, Observation, PoolView
from llmserve_env.fleet.outcome import WindowOutcome, WindowServer
from llmserve_env.fleet.serving import EngineServer
from llmserve_env.fleet.task import FleetTask
from llmserve_env.fleet.traffic import Traffic

S_PER_DAY = 86_400.0
ORCHESTRATED = ("up", "booting", "waking", "draining", "asleep", "refused", "failed", "taken")
"""What the orchestrator says about a pool, as it is now."""


@dataclass(slots=True)
class Progress:
    """Where an episode stands."""

    window: int
    """Windows served, those of the lead included."""
    account: Account
    seen: WindowOutcome
    """The window that metrics show: the one before the last."""
    last: WindowOutcome
    decision: FleetDecision
    trouble_at_s: tuple[float, ...]
    """When a replica of each pool was last refused or taken, from the start of the lead; negative for never."""
    gpu_hours: float = 0.0


class FleetEpisode:
    """A task on one episode's traffic, served by the engine or by what stands in for it."""

    def __init__(self, task: FleetTask, traffic: Traffic, server: WindowServer | None = None) -> None:
        self.task, self.traffic = task, traffic
        self.server: WindowServer = EngineServer(task, traffic) if server is None else server
        self._now: Progress | None = None

    def reset(self) -> Observation:
        """Play the lead, and observe."""
        self.server.reset()
        start = replace(self.task.default_decision(), serving=self.traffic.initial)
        outcomes = [self.server.serve(start) for _ in range(self.traffic.lead_windows)]
        never = (-1.0,) * len(self.task.pools)
        self._now = Progress(
            self.traffic.lead_windows, Account(self.task.prices), outcomes[-2], outcomes[-1], start, never
        )
        return self._observe(self._now)

    @property
    def progress(self) -> Progress:
        """Where the episode stands; EpisodeStateError before the first reset."""
        if self._now is None:
            raise EpisodeStateError("the episode has not begun; call reset first")
        return self._now

    @property
    def account(self) -> Account:
        return self.progress.account

    @property
    def is_over(self) -> bool:
        return self.progress.window == self.traffic.lead_windows + self.task.steps

    def step(self, decision: FleetDecision) -> tuple[Observation, float, bool, dict[str, Any]]:
        """Serve one window: (observation, dollars it brought, whether the episode is over, details).

        Dollars are the change of `account.net_usd`, so that they add up to the episode's.
        """
        now = self.progress
        if self.is_over:
            raise EpisodeStateError(f"the episode ended after {self.task.steps} steps; call reset")
        self.task.check(decision)
        net_usd = now.account.net_usd
        outcome = self.server.serve(decision)
        self._book(now, outcome)
        now.seen, now.last, now.decision = now.last, outcome, decision
        now.window += 1
        dollars = now.account.net_usd - net_usd
        return self._observe(now), dollars, self.is_over, self._details(now)

    def _book(self, now: Progress, outcome: WindowOutcome) -> None:
        account, gpus = now.account, self.task.gpus_per_replica
        account.judged += outcome.judged
        account.met += outcome.met
        account.interactive_usd += outcome.interactive_usd
        account.batch_usd += outcome.batch_usd
        end_s = (now.window + 1) * self.task.window_s
        for spec, pool in zip(self.task.pools, outcome.pools, strict=True):
            account.bill_usd += rental_usd(self.task.prices, spec.purchase, gpus, pool.serving_s, pool.asleep_s)
            now.gpu_hours += gpus * (pool.serving_s + pool.asleep_s) / 3_600.0
        now.trouble_at_s = tuple(
            end_s if pool.refused or pool.taken else at
            for at, pool in zip(now.trouble_at_s, outcome.pools, strict=True)
        )

    def _details(self, now: Progress) -> dict[str, Any]:
        outcome, account = now.last, now.account
        return {
            "cost": outcome.judged - outcome.met,
            "judged": outcome.judged,
            "attainment": account.attainment,
            "income_usd": account.income_usd,
            "bill_usd": account.bill_usd,
            "credits_usd": account.credits_usd,
            "net_usd": account.net_usd,
            "gpu_hours": now.gpu_hours,
            "outcome": outcome,
        }

    def _observe(self, now: Progress) -> Observation:
        seen, last, account, traffic = now.seen, now.last, now.account, self.traffic
        w, window_s = now.window - 2, self.task.window_s
        time_s = (now.window - traffic.lead_windows) * window_s
        judged = max(seen.judged, 1)
        budget = now.decision.token_budget
        return Observation(
            time_s=time_s,
            time_of_day=(traffic.start_s + time_s) % S_PER_DAY / S_PER_DAY,
            request_rps=traffic.arrivals[w] / window_s,
            prompt_tps=traffic.prompt_tokens[w] / window_s,
            new_prompt_tps=traffic.new_prompt_tokens[w] / window_s,
            output_tps=seen.output_tokens / window_s,
            session_start_rps=traffic.session_starts[w] / window_s,
            open_sessions=float(traffic.open_sessions[w]),
            queue=seen.queue,
            running=seen.running,
            kv_use=seen.kv_use,
            ttft_ms=seen.ttft_ms,
            tpot_ms=seen.tpot_ms,
            ttft_attainment=seen.ttft_met / judged if seen.judged else 1.0,
            tpot_attainment=seen.tpot_met / judged if seen.judged else 1.0,
            attainment=seen.met / judged if seen.judged else 1.0,
            attainment_so_far=account.attainment,
            batch_backlog=last.batch_backlog,
            batch_running=last.batch_running,
            batch_deadline_s=last.batch_deadline_s,
            income_usd=account.income_usd,
            bill_usd=account.bill_usd,
            credits_usd=account.credits_usd,
            batch_share=now.decision.batch_share,
            token_budget=float(self.task.replica.token_budget if budget is None else budget),
            pools=tuple(self._view(now, p) for p in range(len(self.task.pools))),
        )

    def _view(self, now: Progress, p: int) -> PoolView:
        pool, trouble_at_s = now.last.pools[p], now.trouble_at_s[p]
        since_s = self.task.length_s if trouble_at_s < 0.0 else now.window * self.task.window_s - trouble_at_s
        orchestrator = {
            **{name: getattr(pool, name) for name in ORCHESTRATED},
            "ordered_serving": float(now.decision.serving[p]),
            "ordered_asleep": float(now.decision.asleep[p]),
            "since_refused_s": since_s,
        }
        if not self.task.pool_metrics:
            return PoolView(**orchestrator)
        seen = now.seen.pools[p]
        return MeteredPoolView(**orchestrator, queue=seen.queue, running=seen.running, kv_use=seen.kv_use)

    def snapshot(self) -> tuple[Any, Progress]:
        """A copy of the whole episode to come back to."""
        now = self.progress
        return self.server.snapshot(), replace(now, account=replace(now.account))

    def restore(self, snapshot: tuple[Any, Progress]) -> None:
        """Go back to a snapshot of this episode."""
        served, now = snapshot
        self.server.restore(served)
        self._now = replace(now, account=replace(now.account))
