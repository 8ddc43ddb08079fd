"""A real engine as the backend of an episode: the same knobs, records and reward as the simulator's."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.backends.backend import Mode
from llmserve_env.backends.real.load import Happening, LoadPlayer
from llmserve_env.backends.real.openai_provider import OpenAIProvider
from llmserve_env.backends.real.provider import Applied, Call, Gauges, Provider
from llmserve_env.backends.real.settings import RealSettings
from llmserve_env.backends.real.spending import Budget
from llmserve_env.backends.real.vllm_provider import VllmProvider
from llmserve_env.backends.real.windows import Served, WindowBook
from llmserve_env.engine.knobs import KNOBS_DTYPE, NAMES, mapping_from_knobs
from llmserve_env.engine.state import records
from llmserve_env.env.kernels import MEMORY_DTYPE, TERMS_DTYPE, hold_knobs, score_windows
from llmserve_env.env.knob_rules import start_memory
from llmserve_env.env.rollouts import scoring_record
from llmserve_env.errors import EpisodeStateError, ProviderError
from llmserve_env.request_table import RequestTable
from llmserve_env.tasks.task import RewardWeights, Task
from llmserve_env.units import BYTES_PER_GB, PS_PER_S, ps_to_s, s_to_ps
from llmserve_env.workloads import sample

PROVIDERS = {"openai": OpenAIProvider, "vllm": VllmProvider}
ON_TIME_S = 0.1
"""A step that begins this soon after the last one's end follows it without a gap: the clock of arrivals runs on."""


class RealBackend:
    """One episode on a real engine. Real time passes while `step` runs; between steps no request arrives."""

    mode: Mode = "real"
    num_episodes = 1

    def __init__(self, task: Task, settings: RealSettings, weights: RewardWeights | None = None) -> None:
        self.task, self.settings = task, settings
        self.scoring = scoring_record(task, weights or task.reward.weights)
        self.memory = records((1,), MEMORY_DTYPE)
        self.terms = records((1,), TERMS_DTYPE)
        self.stopped: str | None = None
        self.book = WindowBook()
        self.provider: Provider | None = None
        self.player: LoadPlayer | None = None
        self._knobs = records((1,), KNOBS_DTYPE)
        self._table: RequestTable | None = None
        self._seed = 0
        self.origin_s = self._closed_at_s = self._ends_at_s = self._paused_s = 0.0
        self._cursor = self._skipped = self._shortened = 0
        self._gauges = Gauges(0, 0)
        self._applied = Applied({})
        self._last_usd = 0.0

    @property
    def window(self) -> Array:
        return self.book.window

    @property
    def metrics(self) -> Array:
        return self.book.metrics

    def reset(self, index: int, seed: int) -> None:
        """Start afresh; an engine that is not there, or does not let us in, is an error now rather than later."""
        self.close()
        provider = PROVIDERS[self.settings.provider](self.settings)
        provider.check()
        self.provider, self.player = provider, LoadPlayer(provider, Budget(self.settings))
        self._table, self._seed = sample(self.task.workload, seed), seed
        memory = self.memory[0]
        start_memory(self.memory, self.scoring, 0)
        self.terms[:] = np.zeros(1, TERMS_DTYPE)
        self.book, self.stopped = WindowBook(), None
        self._cursor = self._skipped = self._shortened = 0
        self._last_usd = 0.0
        self._applied = provider.apply(mapping_from_knobs(memory["current"].tolist()))
        self._gauges = provider.gauges()
        self.origin_s = self._closed_at_s = self._ends_at_s = time.monotonic()

    def step(self, requested: Array) -> None:
        """Serve one window in real time; ProviderError ends the episode, and says why."""
        provider, player = self.provider, self.player
        if provider is None or player is None:
            raise EpisodeStateError("reset the episode before its first step")
        try:
            self._turn(provider, requested)
            self._serve(player)
            self._count(provider, player)
        except ProviderError as error:
            self.close(str(error))
            raise
        score_windows(self.scoring, self.memory, self.book.window, self.book.metrics, self.terms)
        self._bill(player.budget)
        self.stopped = player.budget.reached
        if self.stopped is not None or self.memory[0]["step"] >= self.task.steps:
            self.close()

    def close(self, reason: str | None = None) -> None:
        """Cancel what is under way and let go of the engine; a reason ends the episode. Records stay readable."""
        self.stopped = self.stopped or reason
        self.provider = None
        if self.player is not None:
            self.player.stop()

    def _turn(self, provider: Provider, requested: Array) -> None:
        """Apply the knobs that the engine takes; a requested change of another one is held."""
        current = self.memory[0]["current"].copy()
        wanted = np.where(np.isnan(requested[0]), self.scoring[0]["default"], requested[0])
        stuck = [name in self._applied.unsupported for name in NAMES]
        hold_knobs(self.scoring, self.memory, np.where(stuck, current, wanted)[None], self._knobs)
        self.memory[0]["held"] |= np.array(stuck) & (wanted != current)
        self._applied = provider.apply(mapping_from_knobs(self.memory[0]["current"].tolist()))

    def _serve(self, player: LoadPlayer) -> None:
        now_s = time.monotonic()
        opened_at_s = self._ends_at_s if now_s - self._ends_at_s < ON_TIME_S else now_s
        self._paused_s, self._ends_at_s = opened_at_s - self._ends_at_s, opened_at_s + self.task.window_s
        self.book.open(self._ps(self._closed_at_s))
        calls = self._due(opened_at_s)
        for call in calls:
            self.book.arrive(
                call.index,
                Served(self._ps(call.arrival_at_s), call.prompt_tokens, call.priority, s_to_ps(call.slo_s)),
            )
        player.play(calls)
        player.wait_until(self._ends_at_s)

    def _due(self, opened_at_s: float) -> list[Call]:
        """The window's arrivals, as many as may be sent, no longer than they may be."""
        assert self._table is not None
        table, limits = self._table, self.settings
        now_s = time.monotonic()
        starts_at_ps = int(self.memory[0]["step"]) * self.task.window_ps
        first = self._cursor
        self._cursor = int(np.searchsorted(table.arrival_at_ps, starts_at_ps + self.task.window_ps, side="left"))
        sent = min(self._cursor, first + limits.max_requests_per_step)
        self._skipped += self._cursor - sent
        calls = []
        for q in range(first, sent):
            prompt, output = int(table.prompt_tokens[q]), int(table.output_tokens[q])
            self._shortened += prompt > limits.max_prompt_tokens or output > limits.max_completion_tokens
            calls.append(
                Call(
                    index=q,
                    # One that came due while the last window was being counted comes now.
                    arrival_at_s=max(opened_at_s + ps_to_s(int(table.arrival_at_ps[q]) - starts_at_ps), now_s),
                    prompt_tokens=min(prompt, limits.max_prompt_tokens),
                    output_tokens=min(output, limits.max_completion_tokens),
                    priority=int(table.priority[q]),
                    slo_s=ps_to_s(int(table.ttft_slo_ps[q])),
                    patience_s=ps_to_s(int(table.patience_ps[q])),
                    prefix_id=int(table.prefix_id[q]),
                    prefix_tokens=int(table.prefix_tokens[q]),
                    seed=self._seed,
                )
            )
        return calls

    def _count(self, provider: Provider, player: LoadPlayer) -> None:
        now_s = time.monotonic()
        if player.dead is not None:
            raise player.dead
        if self.stopped is not None:
            raise ProviderError(self.stopped)
        book = self.book
        for event in player.take_events(now_s):
            at_ps = self._ps(event.at_s)
            match event.what:
                case Happening.TOKENS:
                    book.tokens(event.index, at_ps, event.tokens)
                case Happening.FINISHED:
                    book.finish(event.index, at_ps)
                case Happening.FAILED:
                    book.reject(event.index)
                case Happening.ABANDONED:
                    book.abandon(event.index, at_ps)
        book.close(self._ps(now_s))
        self._read(provider.gauges(), now_s - self._closed_at_s)
        self._closed_at_s = now_s

    def _read(self, gauges: Gauges, length_s: float) -> None:
        """The engine's own figures; what it does not say stays 0 and is named in the metadata."""
        before, self._gauges = self._gauges, gauges
        window, out, fleet = self.book.window[0], self.book.metrics[0], self.task.fleet
        out["queue_depth"], out["active_requests"] = gauges.queue_depth, gauges.active_requests
        out["kv_cache_occupancy"] = gauges.kv_cache_occupancy or 0.0
        for name in ("preemptions", "drafted_tokens", "accepted_tokens", "iterations"):
            window[name] = max((getattr(gauges, name) or 0) - (getattr(before, name) or 0), 0)
        out["acceptance_rate"] = int(window["accepted_tokens"]) / max(int(window["drafted_tokens"]), 1)
        busy_s = max((gauges.busy_s or 0.0) - (before.busy_s or 0.0), 0.0)
        window["busy_ps"] = s_to_ps(busy_s)
        out["busy_gpu_s"], out["in_service_gpu_s"] = busy_s, length_s
        out["available_replicas"] = out["tier_progress"] = 1.0
        if gauges.reserved_kv_fraction is not None:
            weights, pool = fleet.costs.tiers[0].weight_bytes, fleet.num_blocks(1.0, 0, False) * fleet.block_bytes
            reserved_bytes = weights + int(gauges.reserved_kv_fraction * pool)
            window["peak_memory_bytes"] = reserved_bytes
            out["peak_memory_gb"] = reserved_bytes / BYTES_PER_GB
            out["reserved_gb_s"] = out["peak_memory_gb"] * length_s

    def _bill(self, budget: Budget) -> None:
        """A metered API is paid by the token: its dollars replace the price of GPU time."""
        if self._gauges.busy_s is not None:
            return
        memory, terms, weights = self.memory[0], self.terms[0], self.scoring[0]["weights"]
        usd, self._last_usd = budget.spent.usd - self._last_usd, budget.spent.usd
        memory["cost_so_far_usd"] += usd - float(terms["cost_usd"])
        terms["cost_usd"] = usd
        share = min(usd * self.task.steps / self.settings.max_usd, 1.0)
        reward = float(terms["reward"]) - float(weights[3]) * (share - float(terms["cost"]))
        memory["total_reward"] += np.clip(reward, -1.0, 1.0) - float(terms["reward"])
        terms["cost"], terms["reward"] = share, np.clip(reward, -1.0, 1.0)

    def _ps(self, at_s: float) -> int:
        return round((at_s - self.origin_s) * PS_PER_S)

    def details(self) -> dict[str, Any]:
        player, gauges = self.player, self._gauges
        return {
            "real": {
                "provider": self.settings.provider,
                "model": self.settings.model,
                "in_force": self._applied.in_force,
                "unsupported_knobs": self._applied.unsupported,
                "unmeasured": [name for name, value in asdict(gauges).items() if value is None],
                "failures": dict(player.failures) if player else {},
                "open_requests": player.num_open if player else 0,
                "not_sent": self._skipped,
                "shortened": self._shortened,
                "spent": asdict(player.budget.spent) if player else {},
                "paused_s": round(self._paused_s, 4),
                "stopped": self.stopped,
            }
        }
