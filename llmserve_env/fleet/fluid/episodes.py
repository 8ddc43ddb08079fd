"""Many episodes of a task side by side on the surrogate: the same observations and dollars as `FleetEpisode`."""

from __future__ import annotations

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.fleet.fluid.calibration import Calibration, arriving_shares, demand_at, role_counts
from llmserve_env.fleet.fluid.jobs import Jobs
from llmserve_env.fleet.fluid.replicas import PoolTimes, Replicas
from llmserve_env.fleet.fluid.service import BUSY_KNOTS, RUNNING_KNOTS, WAIT_KNOTS, Demand, InFlight, Served
from llmserve_env.fleet.fluid.worlds import Worlds
from llmserve_env.fleet.observation import SCALARS, pool_fields
from llmserve_env.fleet.rules.placement import groups_of
from llmserve_env.fleet.rules.rule import Decisions
from llmserve_env.fleet.sections import PriceSpec
from llmserve_env.fleet.task import FleetTask

DRAIN_S = 12.0
"""How long a replica that is sent away is billed, on average."""
S_PER_DAY, S_PER_HOUR = 86_400.0, 3_600.0
CHANCE_SEED = 0


def credit_shares(attainment: Array, prices: PriceSpec) -> Array:
    """`dollars.credit_share` for many episodes."""
    rungs = prices.credits
    if not rungs:
        return np.zeros_like(attainment)
    below, shares = [rung.below for rung in rungs][::-1], [rung.share for rung in rungs][::-1]
    return np.where(attainment >= rungs[0].below, 0.0, np.interp(attainment, below, shares))


class FluidEpisodes:
    """Episodes that begin together, on the worlds of the given rows."""

    def __init__(self, task: FleetTask, worlds: Worlds, calibration: Calibration, rows: Array) -> None:
        self.task, self.rows, self._worlds = task, rows, worlds
        self._flow, self._curves = calibration.flow, calibration.curves
        self._data = {name: values[rows] for name, values in worlds.per_window.items()}
        self._job_tokens, self._capacity = worlds.job_tokens[rows], worlds.capacity[rows]
        # Every launch and every notice is over within the longest of them.
        times = _times(task)
        horizon = int(np.ceil(max(np.abs(worlds.delays).max(), times.notice.max()))) + 1
        self.replicas = Replicas(worlds.initial[rows], _limits(task), times, worlds.delays[rows], horizon)
        patience_s = task.traffic_spec.patience_s
        self._in_flight = InFlight(calibration.flow, len(rows), task.window_s, patience_s)
        self._jobs = Jobs(task, self._data["batch_arrivals"], worlds.job_usd[rows])
        prices, gpus = task.prices, task.gpus_per_replica
        self._rent = np.array([prices.gpu_hour_usd[pool.purchase] * gpus for pool in task.pools])
        zeros = np.zeros(len(rows))
        self.interactive_usd, self.batch_usd, self.bill_usd = zeros, zeros, zeros
        self.judged, self.met, self.gpu_hours = zeros, zeros, zeros
        self._batch_before = zeros
        self._decoding_before = role_counts(task, self.replicas.up)[0]
        self._trouble_at_s = np.full(worlds.initial[rows].shape, -1.0)
        self._is_split, self._chance = calibration.flow.is_split, np.random.default_rng(CHANCE_SEED)
        self.window = 0
        self._metrics: list[dict[str, Array]] = []
        self._lead()

    @property
    def is_over(self) -> bool:
        """Whether every step of the episodes is played."""
        return self.window == self._worlds.lead_windows + self.task.steps

    @property
    def attainment(self) -> Array:
        """Share of promises kept so far."""
        return np.where(self.judged > 0, self.met / np.maximum(self.judged, 1e-9), 1.0)

    @property
    def net_usd(self) -> Array:
        """Income less bill less credits, so far."""
        credits = credit_shares(self.attainment, self.task.prices) * self.interactive_usd
        return np.asarray(self.interactive_usd + self.batch_usd - self.bill_usd - credits)

    @property
    def promised_usd(self) -> Array:
        """Income of all requests of an episode, if every promise is kept."""
        return np.asarray(self._data["income_usd"][:, self._worlds.lead_windows :].sum(axis=1))

    def step(self, decisions: Decisions) -> Array:
        """Serve one window; returns the dollars that it brought to each episode."""
        before = self.net_usd
        self._serve(decisions, is_billed=True)
        return self.net_usd - before

    def _lead(self) -> None:
        count = len(self.rows)
        start = self.task.default_decision()
        budget = np.full(count, float(self.task.replica.token_budget))
        initial = self._worlds.initial[self.rows]
        decisions = Decisions(initial, np.zeros_like(initial), np.full(count, start.batch_share), budget)
        for _ in range(self._worlds.lead_windows):
            self._serve(decisions, is_billed=False)

    def _serve(self, decisions: Decisions, is_billed: bool) -> None:
        window, replicas = self.window, self.replicas
        replicas.order(decisions.serving, decisions.asleep, self._capacity[:, window])
        admitted = self._jobs.admit(window, decisions.batch_share)
        demand = demand_at(self._data, self._job_tokens, window, self.task.window_s, admitted)
        decoding, prefilling = role_counts(self.task, replicas.serving)
        served = self._in_flight.serve(demand, decoding, prefilling)
        batch = np.maximum(served.mean_running, self._batch_before)
        self._batch_before = served.mean_running
        arriving = arriving_shares(np.stack((self._decoding_before, decoding), axis=-1))[:, 1]
        self._decoding_before = decoding
        kept = self._curves.attainment(batch, arriving, served.wait_s)
        billed, asleep = replicas.billed, replicas.asleep.copy()
        replicas.advance()
        end_s = (window + 1) * self.task.window_s
        if is_billed:
            self._book(kept, served, billed, asleep)
        trouble = (replicas.refused > 0) | (replicas.taken > 0)
        self._trouble_at_s = np.where(trouble, end_s if is_billed else -1.0, self._trouble_at_s)
        self._decisions = decisions
        self._metrics = [*self._metrics[-1:], self._window_metrics(served, kept, demand, decoding, prefilling)]
        self.window += 1

    def _book(self, kept: Array, served: Served, billed: Array, asleep: Array) -> None:
        arrivals, hours = self._data["arrivals"][:, self.window], self.task.window_s / S_PER_HOUR
        self.judged = self.judged + arrivals
        self.met = self.met + arrivals * kept
        self.interactive_usd = self.interactive_usd + self._data["income_usd"][:, self.window] * kept
        self.batch_usd = self.batch_usd + self._jobs.value_usd * served.jobs_done
        rented = billed + self.task.prices.asleep_share * asleep
        self.bill_usd = self.bill_usd + hours * (rented @ self._rent)
        self.gpu_hours = self.gpu_hours + hours * self.task.gpus_per_replica * (billed + asleep).sum(-1)

    def _window_metrics(
        self, served: Served, kept: Array, demand: Demand, decoding: Array, prefilling: Array
    ) -> dict[str, Array]:
        curves = self._curves
        # Requests that wait for the next iteration: a rule's thresholds must live with them.
        chance = self._chance.poisson(demand.request_rps * np.interp(served.prefill, BUSY_KNOTS, curves.queue_s))
        queue, running = served.unread + chance, served.running * decoding
        kv_use = np.interp(served.running, RUNNING_KNOTS, curves.kv_use)
        roles = {"queue": served.waiting + queue, "running": running, "kv_use": kv_use}
        if self._is_split:
            reading = demand.request_rps * np.interp(served.prefill, BUSY_KNOTS, curves.prefill_running_s)
            reading_kv = np.interp(served.prefill, BUSY_KNOTS, curves.prefill_kv_use)
            roles |= {
                "running": running + reading,
                "kv_use": (kv_use * decoding + reading_kv * prefilling) / (decoding + prefilling),
                "prefill.queue": queue,
                "prefill.running": reading,
                "prefill.kv_use": reading_kv,
                "decode.queue": served.waiting,
                "decode.running": running,
                "decode.kv_use": kv_use,
            }
        return {
            **roles,
            "output_tps": served.output_tps,
            "ttft_ms": np.interp(served.wait_s, WAIT_KNOTS, self._curves.ttft_ms),
            "tpot_ms": served.tpot_s * 1e3,
            "ttft_attainment": kept,
            "tpot_attainment": kept,
            "attainment": kept,
        }

    def observe(self) -> Array:
        """[episode, figure], in the order of the task's feature names."""
        seen, at, window_s = self._metrics[0], self.window - 2, self.task.window_s
        time_s = (self.window - self._worlds.lead_windows) * window_s
        figures: dict[str, Array | float] = {
            **seen,
            "time_s": time_s,
            "time_of_day": (self._worlds.start_s[self.rows] + time_s) % S_PER_DAY / S_PER_DAY,
            "request_rps": self._data["arrivals"][:, at] / window_s,
            "prompt_tps": self._data["prompt_tokens"][:, at] / window_s,
            "new_prompt_tps": self._data["new_prompt_tokens"][:, at] / window_s,
            "session_start_rps": self._data["session_starts"][:, at] / window_s,
            "open_sessions": self._data["open_sessions"][:, at],
            "attainment_so_far": self.attainment,
            "batch_backlog": self._jobs.waiting(self.window),
            "batch_running": self._in_flight.jobs,
            "batch_deadline_s": self._jobs.deadline_in_s(self.window),
            "income_usd": self.interactive_usd + self.batch_usd,
            "bill_usd": self.bill_usd,
            "credits_usd": credit_shares(self.attainment, self.task.prices) * self.interactive_usd,
            "batch_share": self._decisions.batch_share,
            "token_budget": self._decisions.token_budget,
        }
        columns = [np.broadcast_to(figures[name], len(self.rows)) for name in SCALARS]
        pools = self._pool_figures()
        names = pool_fields(self.task.pool_metrics)
        columns += [pools[name][:, pool] for pool in range(len(self.task.pools)) for name in names]
        return np.stack(columns, axis=1)

    def _pool_metrics(self) -> dict[str, Array]:
        """Metrics of each pool's role, shared among its pools by the replicas that serve."""
        seen, up = self._metrics[0], np.maximum(self.replicas.up, 1e-9)
        found = {name: np.zeros_like(up) for name in ("queue", "running", "kv_use")}
        for role, pools in groups_of(self.task).items():
            columns = list(pools)
            share = up[:, columns] / up[:, columns].sum(axis=1, keepdims=True)
            own = f"{role}." if self._is_split else ""
            for name, values in found.items():
                of_role = seen[own + name][:, None]
                values[:, columns] = of_role if name == "kv_use" else of_role * share
        return found

    def _pool_figures(self) -> dict[str, Array]:
        replicas, none = self.replicas, np.zeros_like(self.replicas.up)
        since_s = self.window * self.task.window_s - self._trouble_at_s
        return {
            **(self._pool_metrics() if self.task.pool_metrics else {}),
            "up": replicas.up,
            "booting": replicas.pending,
            "waking": none,
            "draining": replicas.leaving,
            "asleep": replicas.asleep,
            "ordered_serving": self._decisions.serving,
            "ordered_asleep": self._decisions.asleep,
            "refused": replicas.refused,
            "failed": replicas.failed,
            "taken": replicas.taken,
            "since_refused_s": np.where(self._trouble_at_s < 0.0, self.task.length_s, since_s),
        }


def _limits(task: FleetTask) -> Array:
    return np.array([float(pool.max_replicas) for pool in task.pools])


def _times(task: FleetTask) -> PoolTimes:
    def windows(name: str) -> Array:
        return np.array([getattr(pool, name) / task.window_s for pool in task.pools])

    names = [pool.name for pool in task.pools]
    partner = tuple(-1 if pool.partner is None else names.index(pool.partner) for pool in task.pools)
    drain = np.full(len(task.pools), DRAIN_S / task.window_s)
    return PoolTimes(windows("wake_s"), windows("notice_s"), windows("flip_s"), drain, partner)
