"""The deployment: clients, router, reloads, the split, and the order of events."""

from __future__ import annotations

from dataclasses import dataclass

from .context import Context, Counters
from .costs import seconds_of_bytes_ps
from .fleet import Fleet
from .inputs import NEVER, Deployment, IterationCallback, Knobs, Orders, RecordedAcceptance, RequestColumns, Script
from .replica import Replica
from .request import REJECTED, Request


@dataclass(frozen=True, slots=True)
class _NoKnobs:
    """Before the first window: nothing is asked for."""

    batch_cap: int = 0
    kv_budget_fraction: float = 0.0
    speculation_depth: int = 0
    quantization_tier: int = 0
    prefill_decode_split: bool = False
    priority_routing: bool = False
    token_budget: int | None = None


def _request_of_row(columns: RequestColumns, row: int) -> Request:
    arrival_at_ps, patience_ps = int(columns.arrival_at_ps[row]), int(columns.patience_ps[row])
    return Request(
        id=row,
        arrival_at_ps=arrival_at_ps,
        prompt_tokens=int(columns.prompt_tokens[row]),
        output_tokens=int(columns.output_tokens[row]),
        priority=int(columns.priority[row]),
        deadline_ps=NEVER if patience_ps >= NEVER else arrival_at_ps + patience_ps,
        acceptance=float(columns.acceptance[row]),
        prefix_id=int(columns.prefix_id[row]),
        prefix_tokens=int(columns.prefix_tokens[row]),
        session_id=int(columns.session_id[row]),
    )


class ReferenceEngine:
    """A deployment serving a request table, one event and one iteration at a time."""

    def __init__(
        self,
        deployment: Deployment,
        requests: RequestColumns,
        seed: int,
        recorded_acceptance: RecordedAcceptance | None = None,
        on_iteration: IterationCallback | None = None,
        script: Script | None = None,
    ) -> None:
        if not deployment.chunked_prefill and deployment.token_budget < deployment.max_model_len:
            raise ValueError(
                f"without chunked prefill a prompt must fit in one iteration: token_budget {deployment.token_budget} "
                f"is below max_model_len {deployment.max_model_len}"
            )
        self.deployment = deployment
        self.requests = [_request_of_row(requests, row) for row in range(len(requests.arrival_at_ps))]
        for request in self.requests:
            if request.prompt_tokens + request.output_tokens > deployment.max_model_len:
                raise ValueError(
                    f"request {request.id} has {request.prompt_tokens} + {request.output_tokens} tokens; "
                    f"max_model_len allows {deployment.max_model_len}"
                )
        self.context = Context(deployment, seed, recorded_acceptance, on_iteration, _NoKnobs())
        num_base = deployment.num_replicas
        self.base = [Replica(i, False, self.context) for i in range(num_base)]
        self.prefill = [Replica(num_base + i, True, self.context) for i in range(deployment.num_prefill_replicas)]
        self.now_ps = 0
        self.next_arrival = 0
        self.target_tier = deployment.costs.first_tier
        self.reloading: Replica | None = None
        self.split_is_up = False
        self.split_ready_at_ps: int | None = None
        self.fleet = None if script is None else Fleet(self.context, script, self.base, self._evacuate, self._reroute)
        self.latest_of_session: dict[int, int] = {}
        """The replica at which the latest request of a session last waited."""

    @property
    def replicas(self) -> list[Replica]:
        """Base replicas, then prefill replicas."""
        return self.base + self.prefill

    @property
    def counters(self) -> Counters:
        """Totals since the start."""
        return self.context.counters

    def advance(self, knobs: Knobs, until_ps: int, orders: Orders | None = None) -> None:
        """Apply the knobs and orders, then serve until `until_ps`."""
        self.context.knobs = knobs
        self.target_tier = knobs.quantization_tier
        self._reload_next(self.now_ps)
        self._apply_split(knobs.prefill_decode_split)
        if self.fleet is not None and orders is not None:
            self.fleet.obey(orders, self.now_ps)
            self._forget_reload(self.now_ps)
        while True:
            t = min(self._next_event_at(), until_ps)
            for replica in self.replicas:
                if replica.is_prefill:
                    replica.advance(t)
            # Hand-offs made on the way are events themselves, and may come before `t`.
            t = min(self._next_event_at(), t)
            for replica in self.replicas:
                if not replica.is_prefill:
                    replica.advance(t)
            if t == until_ps:
                break
            self._handle_one_event(t)
        self.now_ps = until_ps
        if self.fleet is not None:
            self.fleet.close(until_ps)

    def _next_event_at(self) -> int:
        times = [NEVER]
        if self.split_ready_at_ps is not None:
            times.append(self.split_ready_at_ps)
        if self.reloading is not None:
            times.append(self.reloading.available_at_ps)
        if self.fleet is not None:
            times.append(self.fleet.next_event_at())
        times += [at_ps for at_ps, _, _ in self.context.handoffs]
        if self.next_arrival < len(self.requests):
            times.append(self.requests[self.next_arrival].arrival_at_ps + self.context.deployment.host.front_end_ps)
        return min(times)

    def _handle_one_event(self, t: int) -> None:
        if self.split_ready_at_ps == t:
            self._bring_split_up(t)
        elif self.reloading is not None and self.reloading.available_at_ps == t:
            self.reloading = None
            self._reload_next(t)
        elif self.fleet is not None and self.fleet.next_event_at() == t:
            self.fleet.handle_event(t, self.target_tier)
            self._forget_reload(t)
        elif self.context.handoffs and min(self.context.handoffs)[0] == t:
            handoff = min(self.context.handoffs)
            self.context.handoffs.remove(handoff)
            request = handoff[2]
            request.transferred = True
            self._place(request, t, self._decoders())
        else:
            request = self.requests[self.next_arrival]
            self.next_arrival += 1
            self._arrive(request, t)

    def _arrive(self, request: Request, t: int) -> None:
        replica = self._route(request, t, self._candidates(request))
        if (
            replica is None
            or replica.num_fresh_waiting(request.priority) >= self.deployment.waiting_room[request.priority]
        ):
            self._reject(request, t)
        else:
            self._enqueue(replica, request, t)

    def _reject(self, request: Request, t: int) -> None:
        request.status = REJECTED
        request.finished_at_ps = t
        self.counters.rejected += 1

    def _enqueue(self, replica: Replica, request: Request, t: int) -> None:
        replica.enqueue(request, t)
        if request.session_id >= 0:
            self.latest_of_session[request.session_id] = replica.index

    def _place(self, request: Request, t: int, candidates: list[Replica]) -> None:
        """Let a request that has been served before wait somewhere else."""
        replica = self._route(request, t, candidates)
        if replica is None:
            self._reject(request, t)
        else:
            self._enqueue(replica, request, t)

    def _decoders(self) -> list[Replica]:
        return [replica for replica in self.replicas if not replica.is_prefill and replica.in_service]

    def _candidates(self, request: Request) -> list[Replica]:
        prefill = [replica for replica in self.replicas if replica.is_prefill and replica.in_service]
        return prefill if request.fresh and prefill else self._decoders()

    def _route(self, request: Request, t: int, candidates: list[Replica]) -> Replica | None:
        if not candidates:
            return None
        available = [replica for replica in candidates if replica.available_at_ps <= t]
        best = min(available or candidates, key=lambda replica: (replica.load, replica.index))
        slack, home = self.deployment.affinity_slack, self.latest_of_session.get(request.session_id)
        near = [replica for replica in available if replica.index == home]
        return near[0] if near and slack >= 0 and near[0].load <= best.load + slack else best

    def _evacuate(self, replica: Replica, t: int) -> None:
        for request in replica.evacuate():
            candidates = self._candidates(request)
            others = [candidate for candidate in candidates if candidate is not replica]
            self._place(request, t, others or candidates)

    def _reroute(self, replica: Replica, t: int) -> None:
        """Let the waiting requests of a replica that leaves service wait elsewhere, if another can take them."""
        for request in sorted(replica.waiting, key=lambda r: (r.arrival_at_ps, r.id)):
            target = self._route(request, t, self._candidates(request))
            if target is not None:
                replica.waiting.remove(request)
                self._enqueue(target, request, t)

    def _reload_next(self, t: int) -> None:
        """Start reloading the lowest-index replica of another tier, unless one is reloading."""
        if self.reloading is not None:
            return
        for replica in self.replicas:
            if replica.in_service and replica.tier != self.target_tier:
                costs = self.deployment.costs
                weight_bytes = costs.tiers[self.target_tier].weight_bytes
                replica.available_at_ps = t + seconds_of_bytes_ps(weight_bytes, costs.weights_load_bytes_per_s)
                replica.free_at_ps = replica.available_at_ps
                replica.tier = self.target_tier
                self.reloading = replica
                self._evacuate(replica, t)
                return

    def _apply_split(self, wanted: bool) -> None:
        if wanted and not self.split_is_up and self.split_ready_at_ps is None and self.prefill:
            self.split_ready_at_ps = self.now_ps + self.deployment.bring_up_ps
        elif not wanted:
            self.split_ready_at_ps = None
            if self.split_is_up:
                self._take_split_down(self.now_ps)

    def _bring_split_up(self, t: int) -> None:
        self.split_ready_at_ps = None
        self.split_is_up = True
        for replica in self.prefill:
            replica.in_service = True
            replica.tier = self.target_tier
            replica.available_at_ps = t
            replica.free_at_ps = t
        for replica in self.base:
            fresh = [request for request in replica.waiting if request.fresh]
            for request in sorted(fresh, key=lambda r: (r.arrival_at_ps, r.id)):
                replica.waiting.remove(request)
                self._place(request, t, self.prefill)
        self._reload_next(t)

    def _take_split_down(self, t: int) -> None:
        self.split_is_up = False
        for replica in self.prefill:
            replica.in_service = False
        for replica in self.prefill:
            self._evacuate(replica, t)
        self._forget_reload(t)

    def _forget_reload(self, t: int) -> None:
        """A replica that left service needs no weights, so the next one starts to reload."""
        if self.reloading is not None and not self.reloading.in_service:
            self.reloading = None
            self._reload_next(t)
