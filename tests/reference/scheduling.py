"""One scheduling of one replica: steps 0 to 5 of the specification, in order."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .costs import host_ps, iteration_ps, seconds_of_bytes_ps
from .kv_cache import Block
from .request import (
    ABANDONED,
    DECODE,
    FIRST_ADMISSION,
    PREFILL_CONTINUATION,
    REJECTED,
    RESUMED,
    RUNNING,
    Iteration,
    Request,
    Work,
)

if TYPE_CHECKING:
    from .replica import Replica


class Scheduling:
    """What is decided at time `s` on a replica; `run` does it."""

    def __init__(self, replica: Replica, s: int) -> None:
        self.replica = replica
        self.pool = replica.pool
        self.context = replica.context
        self.deployment = replica.context.deployment
        self.knobs = replica.context.knobs
        self.s = s
        self.works: list[Work] = []
        self.preempted: list[int] = []
        self.out_of_memory = False
        self.num_admitted = 0
        self.budget = self.deployment.token_budget if self.knobs.token_budget is None else self.knobs.token_budget
        self.depth = self.knobs.speculation_depth
        self.lookahead = self.depth if self.deployment.draft_lookahead else 0
        self.threshold = 0

    def run(self) -> None:
        """Decide, allocate, and start the iteration (or run out of memory)."""
        self._abandon()
        if self.replica.load > 1:
            self.threshold = self.deployment.long_prefill_threshold
        free_before = self._resize_pool()
        self._schedule_running()
        if not self.preempted:
            self._admit()
        if not self.works:
            return
        if self._memory_bytes() > self.deployment.memory_limit_bytes:
            self._run_out_of_memory()
        else:
            self._start(free_before)

    def _abandon(self) -> None:
        for request in self.replica.running + self.replica.waiting:
            out_of_patience = request.first_token_at_ps < 0 and request.deadline_ps <= self.s
            if out_of_patience and request.in_flight_tokens == 0:
                self.replica.end(request, ABANDONED, request.deadline_ps)
                self.context.counters.abandoned += 1

    def _num_blocks(self) -> int:
        deployment, fraction = self.deployment, self.knobs.kv_budget_fraction
        if deployment.num_blocks_override is not None:
            return math.floor(fraction * deployment.num_blocks_override)
        block_bytes = deployment.block_tokens * deployment.costs.kv_bytes_per_token
        pool_bytes = deployment.memory_limit_bytes - self._weight_bytes() - deployment.activation_reserve_bytes
        return max(0, math.floor(fraction * pool_bytes) // block_bytes)

    def _weight_bytes(self) -> int:
        costs = self.deployment.costs
        draft_bytes = costs.draft_bytes if self.depth > 0 else 0
        return costs.tiers[self.replica.tier].weight_bytes + draft_bytes

    def _resize_pool(self) -> int:
        """Step 1; returns the free blocks that scheduling starts from."""
        num_blocks = self._num_blocks()
        while self.pool.num_held > num_blocks:
            self._preempt(self._victim())
        self.pool.resize(num_blocks)
        return self.pool.num_free

    def _victim(self) -> Request:
        if self.knobs.priority_routing:
            return max(self.replica.running, key=lambda r: (r.priority, r.arrival_at_ps, r.id))
        return self.replica.running[-1]

    def _preempt(self, victim: Request) -> None:
        self.replica.preempt(victim)
        self.preempted.append(victim.id)

    def _schedule_running(self) -> None:
        """Step 2."""
        position = 0
        while position < len(self.replica.running) and self.budget > 0:
            request = self.replica.running[position]
            n = self._tokens_to_run(request)
            if n > 0 and not self._make_room(request, n):
                return
            if n > 0:
                decodes = request.computed >= request.decodes_from
                self._schedule_work(request, n, DECODE if decodes else PREFILL_CONTINUATION)
            # Victims before this request shift it to the left.
            position = self.replica.running.index(request) + 1

    def _tokens_to_run(self, request: Request) -> int:
        in_flight = request.in_flight_tokens
        if in_flight > 0 and self.replica.is_prefill:
            return 0
        last_position = request.prompt_tokens + request.output_tokens
        if in_flight > 0 and request.computed + 2 - in_flight >= last_position:
            return 0
        drafts = self.depth if request.prefilled else 0
        n = request.known + drafts + in_flight - request.computed
        if self.threshold > 0:
            n = min(n, self.threshold)
        return min(n, self.budget, self.deployment.max_model_len - 1 - request.computed)

    def _make_room(self, request: Request, n: int) -> bool:
        """Preempt until the request's blocks are free; False when it had to be preempted itself."""
        tokens = self._tokens_with_lookahead(request.computed + n)
        while self.pool.blocks_for(tokens) - len(request.blocks) > self.pool.num_free:
            victim = self._victim()
            for work in self.works:
                if work.request is victim:
                    self.budget += work.n_tokens
            self.works = [work for work in self.works if work.request is not victim]
            self._preempt(victim)
            if victim is request:
                return False
        return True

    def _tokens_with_lookahead(self, tokens: int) -> int:
        return min(tokens + self.lookahead, self.deployment.max_model_len)

    def _schedule_work(self, request: Request, n: int, kind: int) -> None:
        """Blocks, keys and budget of an item that is known to fit."""
        self.pool.grow(request, self._tokens_with_lookahead(request.computed + n))
        self.pool.enter_keys(request, min(request.computed + n, request.known))
        drafts = max(0, n + request.computed - request.known - request.in_flight_tokens)
        self.works.append(Work(request, n, request.computed, kind, drafts))
        self.budget -= n

    def _admit(self) -> None:
        """Step 3."""
        for request in self.replica.waiting_in_order():
            if self.budget == 0 or len(self.replica.running) >= self.knobs.batch_cap:
                return
            # Output of a preempted request that is still in flight would change what there is to prefill.
            if request.in_flight_tokens > 0:
                continue
            hit = [] if request.transferred else self.pool.lookup(request)
            computed = request.known - 1 if request.transferred else len(hit) * self.deployment.block_tokens
            n = request.known - computed
            if self.threshold > 0:
                n = min(n, self.threshold)
            if n > self.budget and not self.deployment.chunked_prefill:
                return
            n = min(n, self.budget)
            blocks_needed = self.pool.cost_of(self._tokens_with_lookahead(computed + n), hit)
            if self.deployment.reserve_full_prompt:
                blocks_needed = max(blocks_needed, self.pool.cost_of(request.known, hit))
            if blocks_needed + self._watermark() <= self.pool.num_free:
                self._admit_one(request, hit, computed, n)
            elif not self.replica.running:
                self.replica.end(request, REJECTED, self.s)
                self.context.counters.rejected += 1
            else:
                return

    def _watermark(self) -> int:
        if not self.replica.running:
            return 0
        return int(self.deployment.watermark_fraction * (self.pool.num_blocks + 1))

    def _admit_one(self, request: Request, hit: list[Block], computed: int, n: int) -> None:
        self.replica.waiting.remove(request)
        self.replica.running.append(request)
        self.pool.hold(request, hit)
        kind = DECODE if request.transferred else FIRST_ADMISSION if request.fresh else RESUMED
        request.prefill_target = request.known
        # The last emitted token alone is a decode item, also when a recomputation is cut just before it.
        request.decodes_from = request.known if request.emitted == 0 else request.known - 1
        request.status = RUNNING
        request.fresh = False
        request.transferred = False
        request.computed = computed
        self._schedule_work(request, n, kind)
        self.num_admitted += 1

    def _memory_bytes(self) -> int:
        """Step 4: what the card holds while this batch runs."""
        costs = self.deployment.costs
        pool_bytes = self.pool.num_blocks * self.deployment.block_tokens * costs.kv_bytes_per_token
        tokens = sum(work.n_tokens for work in self.works)
        activation_bytes = tokens * costs.activation_bytes_per_token
        sequences = len(self.works)
        if self.deployment.warm_up_at_cap:
            sequences = max(sequences, self.knobs.batch_cap)
        return self._weight_bytes() + pool_bytes + activation_bytes + sequences * costs.logits_bytes_per_sequence

    def _run_out_of_memory(self) -> None:
        replica = self.replica
        self.out_of_memory = True
        replica.lose_iterations()
        for request in replica.running:
            replica.lose_kv(request)
        replica.waiting += replica.running
        replica.running = []
        self.pool.forget_all_keys()
        costs = self.deployment.costs
        load_ps = seconds_of_bytes_ps(costs.tiers[replica.tier].weight_bytes, costs.weights_load_bytes_per_s)
        replica.available_at_ps = self.s + load_ps + self.deployment.restart_overhead_ps
        replica.free_at_ps = replica.available_at_ps
        self.context.counters.ooms += 1

    def _start(self, free_before: int) -> None:
        """Step 5."""
        for work in self.works:
            request = work.request
            request.computed += work.n_tokens
            work.emits = request.computed >= request.known + request.in_flight_tokens
            if work.emits and self.deployment.async_scheduling:
                request.in_flight_tokens += 1 + work.drafts
        time_ps = iteration_ps(self.deployment.costs, self.replica.tier, self.depth, self.works)
        time_ps += host_ps(self.deployment.host.sampling, len(self.works))
        launched_ps, first_kernel_ps = self._launch_times()
        executing = self.replica.iterations
        start_ps = max(first_kernel_ps, executing[-1].end_ps) if executing else first_kernel_ps
        end_ps = max(start_ps + time_ps, launched_ps)
        executing.append(Iteration(start_ps, end_ps, self.works))
        self.replica.free_at_ps = launched_ps
        self.context.counters.iterations += 1
        self.context.counters.busy_ps += time_ps
        if self.context.on_iteration is not None:
            items = [work.as_item() for work in self.works]
            self.context.on_iteration(
                self.replica.index,
                self.s,
                start_ps,
                end_ps,
                items,
                free_before,
                self.pool.num_free,
                self.preempted,
            )

    def _launch_times(self) -> tuple[int, int]:
        """When the host has launched the iteration, and when the GPU can begin with it."""
        host, num_sequences = self.deployment.host, len(self.works)
        admission_ps = host.per_admission_ps * self.num_admitted
        if sum(work.n_tokens for work in self.works) > self.deployment.graph_max_tokens:
            mode = host.no_graph
        elif all(work.kind == DECODE for work in self.works):
            mode = host.full_graph
        else:
            mode = host.piecewise_graph
        launch_ps = host_ps(mode, num_sequences) + admission_ps
        graph_ps = host_ps(host.full_graph, num_sequences) + admission_ps
        return self.s + launch_ps, self.s + min(launch_ps, graph_ps)
