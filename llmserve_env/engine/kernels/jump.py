"""Many pure-decode iterations at once, in closed form and exactly.

While every running request decodes and none can be admitted, iteration j takes D + j*g: only the context grows, by
one token per running request, and the attention curve is linear between knots. The sums are quadratic, in integers.
"""

from __future__ import annotations

import numpy as np

from llmserve_env.engine.kernels.compilation import kernel, rare_kernel
from llmserve_env.engine.kernels.complete import advance_plain
from llmserve_env.engine.kernels.kv_pool import key_decoded, use_blocks
from llmserve_env.engine.kernels.lanes import ZERO, whole_vectors
from llmserve_env.engine.kernels.latency import host_ps, on_segment, output_ps, segment_near, without_attention_ps
from llmserve_env.engine.kernels.launch import activation_bytes
from llmserve_env.engine.kernels.recording import count_gaps, gap_bin
from llmserve_env.engine.kernels.schedule import hold_tokens
from llmserve_env.engine.layout import MAX_RUNNING, NUM_CURVES


@kernel
def total_ps(first, growth, count):
    """Sum of `count` iteration times: first, first + growth, and so on."""
    return count * first + growth * (count * (count - 1) // 2)


@kernel
def most_within(first, growth, limit, most):
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
def can_jump(deployment, environment, replica):
    """Whether the next iterations differ in context alone."""
    n = replica.num_running
    if deployment.step_every_iteration or environment.speculation_depth > 0 or replica.pool_is_stale:
        return False
    if n == 0 or replica.num_prefilling > 0 or replica.num_stalled > 0 or n > environment.token_budget:
        return False
    if replica.next_deadline_at_ps <= replica.free_at_ps:
        return False
    if replica.num_waiting > 0 and n < min(environment.batch_cap, MAX_RUNNING):
        return False
    needed_bytes = batch_memory(deployment, environment, replica)
    return deployment.num_blocks_override >= 0 or needed_bytes <= deployment.memory_limit_bytes


@kernel
def batch_memory(deployment, environment, replica):
    """Bytes in use while every running request decodes one token."""
    n = replica.num_running
    return replica.reserved_bytes + activation_bytes(deployment, environment, n, n)


@kernel
def series(deployment, replica):
    """The next iterations of an unchanged batch, as (GPU time of the first, growth, how many at most).

    They end with the first request that has all its tokens, or at the next knot of the attention curve.
    """
    n, tier = replica.num_running, replica.tier
    known, last, computed = replica.batch.known, replica.batch.last, replica.batch.computed
    left, held_tokens, end = np.int32(last[0] - known[0]), ZERO, np.int32(n)
    for i in range(whole_vectors(n)):
        is_in, rest = np.int32(i) < end, np.int32(last[i] - known[i])
        left = rest if is_in and rest < left else left
        held_tokens = np.int32(held_tokens + (computed[i] if is_in else ZERO))
    context = n + np.int64(held_tokens)
    curve = deployment.curves[tier * NUM_CURVES]
    knot = replica.knot = segment_near(curve, context, replica.knot)
    most = min(np.int64(left), (curve[0, knot + 1] - 1 - context) // n + 1)
    gpu = without_attention_ps(deployment, tier, n, n, 0) + on_segment(curve, knot, context)
    return gpu, curve[2, knot] * n, most


@kernel
def next_series(sim, r):
    """`series` for replica r, or the one kept since it began to rest; no iterations if it cannot jump."""
    deployment, replica = sim.deployment, sim.replicas[r]
    if replica.is_resting:
        replica.is_resting = 0
        return replica.rest_gpu_ps, replica.rest_growth_ps, replica.rest_iterations
    if deployment.async_scheduling or not can_jump(deployment, sim.environment, replica):
        return 0, 0, 0
    return series(deployment, replica)


@kernel
def rest(sim, r, until_ps, first, gpu, growth, most):
    """Postpone the next iterations of replica r beyond `until_ps`, if nothing that a router reads of it can change.

    Only an arriving or finishing request changes that. False if something happens by then.
    """
    deployment, replica = sim.deployment, sim.replicas[r]
    spare = (replica.num_blocks - replica.used_blocks) // replica.num_running << deployment.block_shift
    due_at_ps = replica.free_at_ps + total_ps(first, growth, min(most, spare))
    if replica.num_waiting > 0 or due_at_ps <= until_ps:
        return False
    replica.due_at_ps = due_at_ps
    replica.is_resting = 1
    replica.rest_gpu_ps, replica.rest_growth_ps, replica.rest_iterations = gpu, growth, most
    return True


@kernel
def jump(sim, r, until_ps, may_rest):
    """Run iterations of an unchanged batch: complete those that end by `until_ps`, start the one that crosses it.

    If the replica may rest, postpone them instead. False if the next iteration needs the scheduler.
    """
    deployment, replica, window = sim.deployment, sim.replicas[r], sim.window
    gpu, growth, most = next_series(sim, r)
    if most == 0:
        return False
    n, at = replica.num_running, replica.free_at_ps
    launch = lead = output = 0
    if deployment.has_host:
        launch, lead = host_ps(deployment, n, 0, n, 0)
        output = output_ps(deployment, n)
        if lead + gpu < launch:
            # The host binds until the context has grown, so these iterations form no series.
            return False
    first = lead + gpu + output
    if may_rest and rest(sim, r, until_ps, first, gpu, growth, most):
        return True
    ended = most_within(first, growth, until_ps - at, most)
    if replica.next_deadline_at_ps < until_ps:
        most = min(most, 1 + most_within(first, growth, replica.next_deadline_at_ps - at - 1, most))
        ended = min(ended, most)
    time = total_ps(first, growth, ended)
    started = ended + (ended < most and at + time < until_ps)
    if started == 0 or not hold_more(sim, r, n, started):
        return False
    window.iterations += started
    window.busy_ps += total_ps(gpu, growth, started)
    window.peak_memory_bytes = max(window.peak_memory_bytes, batch_memory(deployment, sim.environment, replica))
    if ended > 0:
        count_series(window, n, first, growth, ended)
        advance_plain(sim, r, n, ended, at + time + deployment.answer_ps)
    replica.free_at_ps = at + time
    if started > ended:
        replica.num_plain = n
        replica.start_at_ps = at + time
        replica.free_at_ps = at + time + launch
        replica.end_at_ps = at + time + lead + gpu + growth * ended
        replica.done_at_ps = replica.end_at_ps + output
        if deployment.has_host:
            replica.gpu_start_at_ps, replica.gpu_ps = at + time + lead, gpu + growth * ended
            replica.num_sequences = n
        replica.prefill_tokens = 0
    return True


@kernel
def pace_behind(deployment, replica, gpu, growth, most):
    """How outputs follow one another with async scheduling, where the slower of GPU and host sets the pace.

    Returns (when the first of these iterations may start, host time for its output, time between outputs, growth of
    that time, iterations at most); none where the host launches kernel by kernel and binds, because then these
    iterations form no series.
    """
    at, n = replica.free_at_ps, replica.num_running
    if not deployment.has_host:
        return replica.end_at_ps, 0, gpu, growth, most
    launch, lead = host_ps(deployment, n, 0, n, 0)
    output = output_ps(deployment, n)
    ready = max(replica.end_at_ps, at + launch)
    if gpu >= launch + output:
        is_launched_in_time = lead == launch or replica.end_at_ps >= at + launch
        return ready, output, gpu, growth, most if is_launched_in_time else 0
    if lead < launch:
        return ready, output, gpu, growth, 0
    host = launch + output
    if growth > 0:
        # The GPU overtakes the host as the context grows.
        most = min(most, (host - gpu) // growth + 2)
    return ready, output, host, 0, most


@kernel
def jump_behind(sim, r, until_ps):
    """`jump` with async scheduling: queue iterations behind the executing one and complete those before them.

    False if the next iteration needs the scheduler.
    """
    deployment, replica, window = sim.deployment, sim.replicas[r], sim.window
    n = replica.num_running
    if replica.num_plain < n or replica.num_stale > 0 or not can_jump(deployment, sim.environment, replica):
        return False
    gpu, growth, most = series(deployment, replica)
    # The last token of a request is in flight when its last but one is known.
    ready, output, pace, pace_growth, most = pace_behind(deployment, replica, gpu, growth, most - 1)
    first_done, last_start = ready + output, replica.next_deadline_at_ps - 1
    if most <= 0 or first_done > until_ps:
        return False
    if last_start < until_ps:
        later = most_within(pace, pace_growth, last_start - first_done, most) + 1 if first_done <= last_start else 0
        most = min(most, 1 + later)
    count = 1 + most_within(pace, pace_growth, until_ps - first_done, most - 1)
    if not hold_more(sim, r, n, count):
        return False
    window.iterations += count
    window.busy_ps += total_ps(gpu, growth, count)
    window.peak_memory_bytes = max(window.peak_memory_bytes, batch_memory(deployment, sim.environment, replica))
    count_gaps(window, first_done - replica.start_at_ps, n)
    if count > 1:
        count_series(window, n, pace, pace_growth, count - 1)
    known = replica.batch.known
    end, more = np.int32(n), np.int32(count)
    for i in range(whole_vectors(n)):
        known[i] += more if np.int32(i) < end else ZERO
    window.output_tokens += n * count
    ready += total_ps(pace, pace_growth, count - 1)
    last_gpu = gpu + growth * (count - 1)
    replica.start_at_ps = replica.free_at_ps = ready + output
    replica.end_at_ps = ready + last_gpu
    replica.done_at_ps = max(replica.end_at_ps, replica.free_at_ps) + output
    replica.gpu_start_at_ps, replica.gpu_ps, replica.num_sequences = ready, last_gpu, n
    return True


@rare_kernel
def count_series(window, n, first, growth, count):
    """Inter-token gaps of `count` iterations of n sequences."""
    if gap_bin(first) == gap_bin(first + growth * (count - 1)):
        count_gaps(window, first, n * count)
    else:
        for j in range(count):
            count_gaps(window, first + growth * j, n)


@kernel
def hold_more(sim, r, n, count):
    """Let every running request hold `count` more tokens, if the pool has the blocks for all of them."""
    deployment, replica = sim.deployment, sim.replicas[r]
    computed, held = replica.batch.computed, replica.batch.held_blocks
    mask, shift = deployment.block_tokens - 1, deployment.block_shift
    spare = replica.num_blocks - replica.used_blocks
    if spare < n * ((count + mask) >> shift):
        needed = 0
        for i in range(n):
            needed += max(((computed[i] + count + mask) >> shift) - held[i], 0)
        if needed > spare:
            return False
    grown = hold_tokens(deployment, replica.batch, n, count)
    if grown > 0:
        use_blocks(sim, r, grown)
    if deployment.prefix_caching:
        key_decoded(sim, r, n, 0, count)
    return True
