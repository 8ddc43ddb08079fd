"""One replica: its queue, its running requests, its clock."""

from __future__ import annotations

from .acceptance import num_accepted
from .context import Context
from .costs import host_ps, seconds_of_bytes_ps
from .kv_cache import KvPool
from .request import DECODE, ENDED, FINISHED, RUNNING, TRANSFERRING, WAITING, Iteration, Request, Work
from .scheduling import Scheduling


class Replica:
    """A continuous-batching engine on one GPU."""

    def __init__(self, index: int, is_prefill: bool, context: Context) -> None:
        self.index = index
        self.is_prefill = is_prefill
        self.context = context
        self.in_service = not is_prefill
        self.tier = context.deployment.costs.first_tier
        self.available_at_ps = 0
        self.free_at_ps = 0
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.pool = KvPool(context.deployment.block_tokens, context.deployment.prefix_caching)
        self.iterations: list[Iteration] = []
        """The executing iteration first; a second one only with asynchronous scheduling."""
        self.must_wait_for_end = False
        """Nothing more can be scheduled before the executing iteration ends."""

    @property
    def load(self) -> int:
        """What the router compares."""
        return len(self.running) + len(self.waiting)

    @property
    def running_ids(self) -> list[int]:
        """Running requests in admission order."""
        return [request.id for request in self.running]

    @property
    def waiting_ids(self) -> list[int]:
        """Waiting requests, head of the queue first."""
        return [request.id for request in self.waiting_in_order()]

    @property
    def held_blocks(self) -> int:
        """Blocks that requests hold; a shared block counts once."""
        return self.pool.num_held

    def waiting_in_order(self) -> list[Request]:
        """The queue, head first."""
        if self.context.knobs.priority_routing:
            return sorted(self.waiting, key=lambda r: (r.priority, r.arrival_at_ps, r.id))
        return sorted(self.waiting, key=lambda r: (r.arrival_at_ps, r.id))

    def num_fresh_waiting(self, priority: int) -> int:
        """Waiting requests of one class that were never admitted anywhere."""
        return sum(1 for request in self.waiting if request.fresh and request.priority == priority)

    def enqueue(self, request: Request, t: int) -> None:
        """A request arrives here at `t`."""
        request.status = WAITING
        self.waiting.append(request)
        if not self.iterations:
            self.free_at_ps = max(self.free_at_ps, t)

    def advance(self, until_ps: int) -> None:
        """Complete iterations that end at or before `until_ps`, schedule those that begin before it."""
        max_scheduled = 2 if self.context.deployment.async_scheduling else 1
        while True:
            if self.iterations and (len(self.iterations) == max_scheduled or self.must_wait_for_end):
                if self._done_ps() > until_ps:
                    return
                self._complete()
                continue
            if self.free_at_ps >= until_ps:
                return
            if self.running or self.waiting:
                self._schedule()
            elif self.iterations:
                self.must_wait_for_end = True
            else:
                return

    def preempt(self, request: Request) -> None:
        """Back to the queue with nothing computed; what was emitted is kept."""
        self.running.remove(request)
        self.lose_kv(request)
        self.waiting.append(request)
        request.preemptions += 1
        self.context.counters.preemptions += 1

    def lose_kv(self, request: Request) -> None:
        """Free all blocks: every known token has to be computed again."""
        self.pool.free(request)
        request.computed = 0
        request.transferred = False
        request.status = WAITING

    def lose_iterations(self) -> None:
        """What executes never happened: no output of it will arrive."""
        for iteration in self.iterations:
            for work in iteration.works:
                work.request.in_flight_tokens = 0
        self.iterations = []
        self.must_wait_for_end = False

    def evacuate(self) -> list[Request]:
        """Empty the replica; returns its requests in the order in which they are routed again."""
        self.lose_iterations()
        evacuated = list(self.running)
        for request in evacuated:
            self.preempt(request)
            self.waiting.remove(request)
        evacuated += sorted(self.waiting, key=lambda r: (r.arrival_at_ps, r.id))
        self.waiting = []
        self.pool.forget_all_keys()
        return evacuated

    def end(self, request: Request, status: str, t: int) -> None:
        """A request leaves for good."""
        if request in self.running:
            self.running.remove(request)
        else:
            self.waiting.remove(request)
        self.pool.free(request)
        request.status = status
        request.finished_at_ps = t

    def _schedule(self) -> None:
        scheduling = Scheduling(self, self.free_at_ps)
        scheduling.run()
        if scheduling.works or scheduling.out_of_memory:
            return
        if self.iterations:
            self.must_wait_for_end = True
        # Otherwise preemptions emptied the batch, and scheduling is tried again at the same time.
        elif self.load > 0 and not scheduling.preempted:
            raise AssertionError(f"replica {self.index} has requests at {self.free_at_ps} ps and schedules none")

    def _done_ps(self) -> int:
        """When the oldest iteration's output is taken in: after the GPU has it and the host has launched the next."""
        iteration = self.iterations[0]
        output_ps = host_ps(self.context.deployment.host.output, len(iteration.works))
        return max(iteration.end_ps, self.free_at_ps) + output_ps

    def _complete(self) -> None:
        done_ps, iteration = self._done_ps(), self.iterations.pop(0)
        self.must_wait_for_end = False
        self.free_at_ps = done_ps
        for work in iteration.works:
            if work.kind != DECODE:
                self.context.counters.prefill_tokens += work.n_tokens
            if work.emits and work.request.status not in ENDED:
                self._emit(work, done_ps)

    def _emit(self, work: Work, end_ps: int) -> None:
        request, context = work.request, self.context
        accepted = num_accepted(request, work.drafts, context.seed, context.recorded_acceptance)
        emitted_now = min(1 + accepted, request.output_tokens - request.emitted)
        known_before = request.known
        request.emitted += emitted_now
        told_ps = end_ps + context.deployment.host.answer_ps
        request.token_times_ps += [told_ps] * emitted_now
        if request.first_token_at_ps < 0:
            request.first_token_at_ps = told_ps
        context.counters.output_tokens += emitted_now
        context.counters.drafted_tokens += work.drafts
        context.counters.accepted_tokens += accepted

        rejected = work.drafts - accepted
        if request.status == RUNNING:
            request.computed -= rejected
        if context.deployment.async_scheduling:
            request.in_flight_tokens -= rejected + emitted_now
            if request.status == RUNNING:
                self.pool.enter_keys(request, request.computed - request.in_flight_tokens)

        if request.emitted == request.output_tokens:
            self.end(request, FINISHED, told_ps)
            context.counters.finished += 1
        elif self.is_prefill and request.status == RUNNING:
            self._hand_off(request, known_before, end_ps)

    def _hand_off(self, request: Request, computed_tokens: int, end_ps: int) -> None:
        self.running.remove(request)
        self.pool.free(request)
        request.computed = 0
        request.status = TRANSFERRING
        costs = self.context.deployment.costs
        transfer_ps = seconds_of_bytes_ps(computed_tokens * costs.kv_bytes_per_token, costs.kv_transfer_bytes_per_s)
        self.context.handoffs.append((end_ps + transfer_ps, request.id, request))
