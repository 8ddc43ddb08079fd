"""Opening and closing a window's books."""

from __future__ import annotations

from llmserve_env.engine.fleet import DRAINING
from llmserve_env.engine.kernels.compilation import rare_kernel
from llmserve_env.engine.kernels.recording import judge
from llmserve_env.engine.kernels.restart import busy_after_ps
from llmserve_env.engine.layout import ITL_BINS, MAX_CLASSES, SPLIT_OFF
from llmserve_env.engine.tiers import NUM_TIERS
from llmserve_env.units import PPM, PS_PER_MS


@rare_kernel
def open_window(sim):
    """Start counting from zero, with the busy time that the last window's iterations carry over."""
    w = sim.window
    w.arrived = w.arrived_prompt_tokens = w.finished = w.rejected = w.abandoned = w.preemptions = w.ooms = w.reloads = 0
    w.iterations = w.output_tokens = w.prefill_tokens = w.cached_tokens = w.drafted_tokens = w.accepted_tokens = 0
    w.peak_memory_bytes = w.in_service_ps = w.itl_samples = w.tpot_sum_ps = w.tpot_requests = w.reserved_byte_ms = 0
    w.busy_ps = sim.environment.busy_carry_ps
    w.opened_at_ps = sim.environment.now_ps
    for k in range(MAX_CLASSES):
        w.arrived_by_class[k] = 0
        w.judged_by_class[k] = 0
        w.wait_ppm_by_class[k] = 0
    for k in range(MAX_CLASSES * NUM_TIERS):
        w.met_by_class_tier[k] = 0
        w.finished_by_class_tier[k] = 0
        w.finished_tokens_by_class_tier[k] = 0
    for i in range(w.itl_first, w.itl_last + 1):
        w.itl[i] = 0
    w.itl_first, w.itl_last = ITL_BINS - 1, 0


@rare_kernel
def open_bill(sim):
    """Subtract what the pools served before the window; the end of the window adds their totals."""
    for p in range(sim.deployment.num_pools):
        sim.window.in_service_ps -= sim.pools[p].serving_ps


@rare_kernel
def close_window(sim):
    """Judge deadlines that passed unserved; settle busy time, reserved memory and GPUs in service."""
    environment, window, now = sim.environment, sim.window, sim.environment.now_ps
    judge_overdue(sim)
    length = now - window.opened_at_ps
    carry = 0
    for r in range(sim.replicas.shape[0]):
        replica = sim.replicas[r]
        carry += busy_after_ps(sim.deployment, replica, now)
        is_kept = replica.in_service or replica.life.state == DRAINING
        if is_kept or (replica.is_prefill and environment.split != SPLIT_OFF):
            if sim.deployment.num_pools == 0:
                window.in_service_ps += length
            window.reserved_byte_ms += replica.reserved_bytes * (length // PS_PER_MS)
            window.peak_memory_bytes = max(window.peak_memory_bytes, replica.reserved_bytes)
    for p in range(sim.deployment.num_pools):
        window.in_service_ps += sim.pools[p].serving_ps
    window.busy_ps -= carry
    environment.busy_carry_ps = carry


@rare_kernel
def judge_overdue(sim):
    """Judge requests whose SLO deadline passed without a first token: they missed it, whatever comes later."""
    environment = sim.environment
    for q in range(environment.judge_cursor, environment.next_arrival):
        if not sim.progress[q].judged and sim.requests[q].slo_at_ps < environment.now_ps:
            judge(sim, q, False, PPM)
    while environment.judge_cursor < environment.next_arrival and sim.progress[environment.judge_cursor].judged:
        environment.judge_cursor += 1
