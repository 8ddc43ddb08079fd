"""Many pure-decode iterations at once, in closed form and exactly.

While every running request decodes and nobody can be admitted, iteration j takes D + j*g: only the context grows, by one
token per running request, and the attention curve is linear between knots. Sums of such times are quadratic in integers.
"""

from __future__ import annotations

from llmserve_env.engine.kernels.compilation import kernel

from llmserve_env.engine.kernels.complete import advance_plain
from llmserve_env.engine.kernels.latency import iteration_ps, segment
from llmserve_env.engine.kernels.recording import count_gaps, gap_bin
from llmserve_env.engine.state import COMPUTED, HELD, KNOWN, LAST, MAX_RUNNING, NUM_CURVES


@kernel
def total_ps(first, growth, count):  # type: ignore[no-untyped-def]
    """Sum of `count` iteration times: first, first + growth, …"""
    return count * first + growth * (count * (count - 1) // 2)


@kernel
def most_within(first, growth, limit, most):  # type: ignore[no-untyped-def]
    """The largest count <= most whose total is at most `limit`."""
    if total_ps(first, growth, most) <= limit:
        return most
    low, high = 0, min(most, limit // first + 1)
    while high - low > 1:
        middle = (low + high) >> 1
        if total_ps(first, growth, middle) <= limit:
            low = middle
        else:
            high = middle
    return low


@kernel
def can_jump(sim, r):  # type: ignore[no-untyped-def]
    """Whether the next iterations differ in context alone."""
    deployment, environment, replica = sim.deployment, sim.environment, sim.replicas[r]
    n = replica.num_running
    if deployment.step_every_iteration or environment.speculation_depth > 0 or replica.pool_is_stale:
        return False
    if n == 0 or replica.num_prefilling > 0 or replica.num_stalled > 0 or n > deployment.token_budget:
        return False
    if replica.num_waiting > 0 and n < min(environment.batch_cap, MAX_RUNNING):
        return False
    activations = n * (deployment.activation_bytes_per_token + deployment.logits_bytes_per_sequence)
    return deployment.num_blocks_override >= 0 or replica.reserved_bytes + activations <= deployment.memory_limit_bytes


@kernel
def jump(sim, r, until_ps):  # type: ignore[no-untyped-def]
    """Complete as many iterations as end by `until_ps` with an unchanged batch; returns how many."""
    if not can_jump(sim, r):
        return 0
    deployment, replica, running = sim.deployment, sim.replicas[r], sim.replicas[r].running
    n, at = replica.num_running, replica.free_at_ps
    known, last, computed = running[KNOWN], running[LAST], running[COMPUTED]
    left, context = last[0] - known[0], 0
    for i in range(n):
        left = min(left, last[i] - known[i])
        context += computed[i]
    context += n
    curve = sim.curves[replica.tier * NUM_CURVES]
    knot = segment(curve, context)
    most = left
    if knot + 1 < curve.shape[1]:
        most = min(left, (curve[0, knot + 1] - 1 - context) // n + 1)
    first = iteration_ps(sim, replica.tier, 0, n, n, n, 0, context, 0)
    growth = curve[2, knot] * n
    count = most_within(first, growth, until_ps - at, most)
    if replica.next_deadline_at_ps <= until_ps:
        if replica.next_deadline_at_ps <= at:
            return 0
        count = min(count, 1 + most_within(first, growth, replica.next_deadline_at_ps - at - 1, most))
    if count <= 0 or not hold_more(sim, r, n, count):
        return 0
    time = total_ps(first, growth, count)
    window = sim.window
    window.iterations += count
    window.busy_ps += time
    memory = replica.reserved_bytes + n * (deployment.activation_bytes_per_token + deployment.logits_bytes_per_sequence)
    window.peak_memory_bytes = max(window.peak_memory_bytes, memory)
    if gap_bin(first) == gap_bin(first + growth * (count - 1)):
        count_gaps(sim, first, n * count)
    else:
        for j in range(count):
            count_gaps(sim, first + growth * j, n)
    replica.free_at_ps = at + time
    advance_plain(sim, r, n, count, at + time)
    return count


@kernel
def hold_more(sim, r, n, count):  # type: ignore[no-untyped-def]
    """Let every running request hold `count` more tokens, if the pool has the blocks for all of them."""
    deployment, replica, running = sim.deployment, sim.replicas[r], sim.replicas[r].running
    computed, held = running[COMPUTED], running[HELD]
    mask, shift = deployment.block_tokens - 1, deployment.block_shift
    spare = replica.num_blocks - replica.used_blocks
    if spare < n * ((count + mask) >> shift):
        needed = 0
        for i in range(n):
            needed += max(((computed[i] + count + mask) >> shift) - held[i], 0)
        if needed > spare:
            return False
    grown = 0
    for i in range(n):
        computed[i] += count
        needed = max((computed[i] + mask) >> shift, held[i])
        grown += needed - held[i]
        held[i] = needed
    replica.used_blocks += grown
    return True
