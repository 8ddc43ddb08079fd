"""A replica that loses what it was doing: out of memory, reloaded, or taken out of service."""

from __future__ import annotations

from llmserve_env.engine.kernels.compilation import rare_kernel
from llmserve_env.engine.kernels.prefix_cache import forget_all
from llmserve_env.engine.kernels.queues import enqueue
from llmserve_env.engine.kernels.slots import drop_slot
from llmserve_env.units import PS_PER_S


@rare_kernel
def seconds_for_bytes_ps(num_bytes, bytes_per_s):
    """Time to move bytes at a bandwidth, rounded up; whole seconds first so that nothing overflows."""
    whole, rest = num_bytes // bytes_per_s, num_bytes % bytes_per_s
    scaled = rest
    part = 0
    for _ in range(4):
        scaled *= 1000
        part = part * 1000 + scaled // bytes_per_s
        scaled %= bytes_per_s
    return whole * PS_PER_S + part + (scaled > 0)


@rare_kernel
def busy_after_ps(deployment, replica, now_ps):
    """GPU time of the executing and the queued iteration that lies after `now_ps`."""
    if not deployment.has_host:
        return max(max(replica.end_at_ps, replica.queued_end_at_ps) - now_ps, 0)
    after = 0
    if replica.end_at_ps >= 0:
        after += min(max(replica.gpu_start_at_ps + replica.gpu_ps - now_ps, 0), replica.gpu_ps)
    if replica.queued_end_at_ps >= 0:
        after += min(max(replica.queued_gpu_start_at_ps + replica.queued_gpu_ps - now_ps, 0), replica.queued_gpu_ps)
    return after


@rare_kernel
def lose_iterations(sim, r, at_ps):
    """Forget what is executing and queued; the part not run yet is not busy time."""
    replica = sim.replicas[r]
    sim.window.busy_ps -= busy_after_ps(sim.deployment, replica, at_ps)
    replica.start_at_ps = replica.end_at_ps = replica.queued_end_at_ps = -1
    replica.prefill_tokens = replica.queued_prefill_tokens = 0
    for i in range(replica.num_stale):
        sim.progress[replica.batch.stale[i]].stale_items = 0
    replica.num_stale = 0
    replica.num_plain = replica.queued_num_plain = 0
    replica.may_queue = 1


@rare_kernel
def run_out_of_memory(sim, r, at_ps):
    """Restart a replica that ran out of memory; its requests wait in its own queue to be recomputed."""
    deployment, replica = sim.deployment, sim.replicas[r]
    sim.window.ooms += 1
    sim.window.peak_memory_bytes = max(sim.window.peak_memory_bytes, deployment.memory_limit_bytes)
    lose_iterations(sim, r, at_ps)
    replica.free_at_ps = replica.available_at_ps = (
        at_ps
        + deployment.restart_overhead_ps
        + seconds_for_bytes_ps(deployment.weight_bytes[replica.tier], deployment.weights_load_bytes_per_s)
    )
    while replica.num_running > 0:
        q = drop_slot(sim, r, replica.num_running - 1, at_ps)
        enqueue(sim, r, q, at_ps)
    if deployment.prefix_caching:
        forget_all(sim, r)
