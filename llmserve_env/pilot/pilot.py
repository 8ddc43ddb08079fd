"""The loop: wait a window, read, ask the policy, keep within the bounds, act, and write down why."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from llmserve_env.agents.agent import Agent, view_of
from llmserve_env.errors import ProviderError
from llmserve_env.pilot.asking import PolicyError, ask
from llmserve_env.pilot.bounds import Bounds
from llmserve_env.pilot.decision import Decision, Outcome
from llmserve_env.pilot.engine_link import EngineLink, in_force
from llmserve_env.pilot.observed import Watch
from llmserve_env.pilot.readings import Reading, Scrape, read_window
from llmserve_env.rng import POLICY_STREAM, stream
from llmserve_env.tasks.task import Task

Listener = Callable[[Decision], None]


class Pilot:
    """A policy beside one engine. `stop` may be called from any thread; the engine keeps its last configuration."""

    def __init__(
        self, task: Task, policy: Agent, link: EngineLink, bounds: Bounds, *, dry_run: bool = False, replicas: int = 1
    ) -> None:
        self.task, self.policy, self.link, self.bounds = task, policy, link, bounds
        self.is_dry_run, self.replicas = dry_run, replicas
        self.listeners: list[Listener] = []
        self.windows = 0
        status = link.status()
        self.current = in_force(status)
        """The configuration that the engine was last given, or was found with."""
        self.last_good = dict(self.current)
        self.unchanged_for: dict[str, int] = {}
        self.load = float(replicas)
        """Replicas' worth of load in the last window that was read."""
        self.watch = Watch(task, self.current)
        policy.reset(task, [stream(0, POLICY_STREAM)])
        self._before: Scrape | None = None
        self._busy_s = status.busy_s
        self._read_at_s = time.monotonic()
        self._stopping = threading.Event()

    def run(self, max_windows: int | None = None) -> None:
        """Decide at the end of every window until it is stopped."""
        while max_windows is None or self.windows < max_windows:
            if self._stopping.wait(self.bounds.window_s):
                return
            self.decide()

    def stop(self) -> None:
        """End the loop; the window under way is not decided on."""
        self._stopping.set()

    @property
    def metrics_age_s(self) -> float:
        """Seconds since the metrics were last read."""
        return time.monotonic() - self._read_at_s

    def decide(self) -> Decision:
        """Read the window that has ended and act on it."""
        reading, wanted = None, {}
        found = dict(self.current)
        try:
            found, reading = self._read()
            if reading is None:
                decision = self._decision("unchanged", "the first scrape only opens a window", {}, found, found, None)
            else:
                wanted = self._ask(found, reading)
                decision = self._act(wanted, found, reading)
        except ProviderError as error:
            decision = self._fall_back(str(error), {}, found, None)
        except PolicyError as error:
            decision = self._fall_back(str(error), wanted, found, reading)
        self.windows += 1
        for listener in self.listeners:
            listener(decision)
        return decision

    def _read(self) -> tuple[dict[str, Any], Reading | None]:
        """The configuration in force and the window since the last scrape; None for the first one."""
        status, after = self.link.status(), self.link.scrape()
        before, self._before = self._before, after
        busy_s, self._busy_s = status.busy_s - self._busy_s, status.busy_s
        self._read_at_s = time.monotonic()
        found = in_force(status) if self.is_dry_run else dict(self.current)
        if before is None:
            return found, None
        age_s, limit_s = after.at_s - before.at_s, self.bounds.stale_after_s
        if age_s > limit_s:
            raise ProviderError(f"the metrics before are {age_s:.0f} s old, more than {limit_s:g} s")
        reading = read_window(before, after, busy_s / max(age_s, 1e-9))
        self.load = self.bounds.replicas.load(self.replicas, reading.busy_share, reading.queue_depth)
        return found, reading

    def _ask(self, found: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
        """What the policy wants after this window."""
        self.watch.set_knobs(found)
        self.watch.see(reading)
        return ask(self.policy, view_of(self.watch.batch, int(self.watch.batch.control[0]["step"])), found)

    def _act(self, wanted: dict[str, Any], found: dict[str, Any], reading: Reading) -> Decision:
        permitted, reasons = self.bounds.limit(wanted, found, self.unchanged_for)
        changed = {name for name in permitted if permitted[name] != found[name]}
        for name in found:
            self.unchanged_for[name] = 1 if name in changed else self.unchanged_for.get(name, 10**6) + 1
        self.last_good = dict(found)
        words = "; ".join(reasons) or ("as the policy wants" if changed else "nothing to change")
        if self.is_dry_run:
            return self._decision("recommended", words, wanted, permitted, found, reading)
        if changed:
            self.link.apply(permitted)
            self.current = permitted
        return self._decision("applied" if changed else "unchanged", words, wanted, permitted, found, reading)

    def _fall_back(
        self, reason: str, wanted: dict[str, Any], found: dict[str, Any], reading: Reading | None
    ) -> Decision:
        """Give the engine the last configuration that was seen to serve, whatever went wrong."""
        if not self.is_dry_run and self.current != self.last_good:
            try:
                self.link.apply(self.last_good)
                self.current = dict(self.last_good)
            except ProviderError as error:
                reason = f"{reason}; and {error}"
        return self._decision("fallback", reason, wanted, dict(self.last_good), found, reading)

    def _decision(
        self,
        outcome: Outcome,
        reason: str,
        wanted: dict[str, Any],
        permitted: dict[str, Any],
        found: dict[str, Any],
        reading: Reading | None,
    ) -> Decision:
        return Decision(
            window=self.windows,
            at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            outcome=outcome,
            reason=reason,
            wanted=wanted,
            permitted=permitted,
            in_force=found,
            load=self.load,
            desired_replicas=self.bounds.replicas.desired(self.load),
            reading=reading.as_json() if reading else {},
        )
