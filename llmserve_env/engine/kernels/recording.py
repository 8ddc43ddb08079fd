"""What is counted while the engine runs: first tokens, gaps between tokens, and SLO verdicts."""

from __future__ import annotations

from llmserve_env.engine.kernels.compilation import kernel
from llmserve_env.engine.layout import FINISHED, ITL_BINS, ITL_SUB_BINS, ITL_UNIT_SHIFT, REJECTED, TTFT_RING
from llmserve_env.engine.tiers import NUM_TIERS
from llmserve_env.units import PPM


@kernel
def gap_bin(gap_ps):
    """Log-linear bin of an inter-token gap."""
    value = gap_ps >> ITL_UNIT_SHIFT
    octave = 0
    while (value >> octave) >= 2 * ITL_SUB_BINS:
        octave += 1
    return min(octave * ITL_SUB_BINS + (value >> octave), ITL_BINS - 1)


@kernel
def count_gaps(window, gap_ps, tokens):
    """Count `tokens` inter-token gaps of this length."""
    i = gap_bin(gap_ps)
    window.itl[i] += tokens
    window.itl_first = min(window.itl_first, i)
    window.itl_last = max(window.itl_last, i)
    window.itl_samples += tokens


@kernel
def judge(sim, q, met, wait_ppm):
    """Judge a request against its SLO, once; `wait_ppm` is its wait in millionths of the SLO, at most all of it."""
    progress = sim.progress[q]
    if progress.judged:
        return
    progress.judged = 1
    k = sim.requests[q].priority
    sim.window.judged_by_class[k] += 1
    sim.window.wait_ppm_by_class[k] += wait_ppm
    if met:
        sim.window.met_by_class_tier[k * NUM_TIERS + progress.tier] += 1


@kernel
def count_wait(sim, at_ps, wait_ps):
    """Record a wait for a first token that ended at this time, served or not."""
    slot = sim.environment.ttft_count % TTFT_RING
    sim.environment.ttft[0, slot] = at_ps
    sim.environment.ttft[1, slot] = wait_ps
    sim.environment.ttft_count += 1


@kernel
def count_arrival(sim, q):
    """Count the arrival of request q."""
    request, window = sim.requests[q], sim.window
    window.arrived += 1
    window.arrived_by_class[request.priority] += 1
    window.arrived_prompt_tokens += request.prompt_tokens


@kernel
def reject(sim, q, at_ps):
    """Turn request q away: it has missed its SLO, unless its first token had come."""
    sim.progress[q].status = REJECTED
    sim.progress[q].finished_at_ps = at_ps
    sim.window.rejected += 1
    judge(sim, q, False, PPM)


@kernel
def first_token(sim, q, at_ps, tier):
    """Record that the first token of request q reaches its client."""
    request, progress = sim.requests[q], sim.progress[q]
    progress.first_token_at_ps = at_ps
    progress.tier = tier
    wait, slo = at_ps - request.arrival_at_ps, request.slo_at_ps - request.arrival_at_ps
    count_wait(sim, at_ps, wait)
    judge(sim, q, wait <= slo, int(min(wait / slo, 1.0) * PPM))


@kernel
def finish(sim, q, at_ps, tier):
    """Record that a request has all its tokens."""
    request, progress, window = sim.requests[q], sim.progress[q], sim.window
    progress.status = FINISHED
    progress.finished_at_ps = at_ps
    progress.emitted = request.output_tokens
    window.finished += 1
    cell = request.priority * NUM_TIERS + tier
    window.finished_by_class_tier[cell] += 1
    window.finished_tokens_by_class_tier[cell] += request.output_tokens
    if request.output_tokens > 1:
        window.tpot_sum_ps += (at_ps - progress.first_token_at_ps) // (request.output_tokens - 1)
        window.tpot_requests += 1
