"""Launching an iteration, steps 4 and 5: count the batch, check its memory, and start or queue it."""

from __future__ import annotations

from llmserve_env.engine.kernels.compilation import kernel, rare_kernel
from llmserve_env.engine.kernels.decision_log import log_item, log_iteration
from llmserve_env.engine.kernels.latency import host_ps, iteration_ps, output_ps
from llmserve_env.engine.kernels.restart import run_out_of_memory
from llmserve_env.engine.layout import NO_OUTPUT


@kernel
def activation_bytes(deployment, environment, tokens, sequences):
    """Memory of a batch besides weights and KV pool; a replica warmed up at its cap has the logits of a full batch."""
    if deployment.warm_up_at_cap:
        sequences = max(sequences, environment.batch_cap)
    return tokens * deployment.activation_bytes_per_token + sequences * deployment.logits_bytes_per_sequence


@kernel
def launch(sim, r, at_ps, iteration, first, plain, plain_context, before_admission, free_before):
    """Start the iteration that was formed, or queue it behind the executing one; nothing without tokens.

    The leading `first` slots hold `plain` of its items, a token each; what other slots compute is in their records.
    """
    deployment, environment, replica = sim.deployment, sim.environment, sim.replicas[r]
    sequences, decode_sequences, decode_tokens, prefill_tokens, context, pairs = count_items(
        sim, r, at_ps, iteration, first, plain, plain_context, before_admission
    )
    tokens = decode_tokens + prefill_tokens
    if tokens == 0:
        return
    needed_bytes = replica.reserved_bytes + activation_bytes(deployment, environment, tokens, sequences)
    if deployment.num_blocks_override < 0 and needed_bytes > deployment.memory_limit_bytes:
        run_out_of_memory(sim, r, at_ps)
        return
    sim.window.peak_memory_bytes = max(sim.window.peak_memory_bytes, needed_bytes)
    time = iteration_ps(
        deployment,
        replica.tier,
        environment.speculation_depth,
        sequences,
        decode_sequences,
        decode_tokens,
        prefill_tokens,
        context,
        pairs,
    )
    sim.window.iterations += 1
    sim.window.busy_ps += time
    start = max(at_ps, replica.end_at_ps)
    end = start + time
    if deployment.has_host:
        admissions = replica.num_running - before_admission
        start, end = launch_on_host(sim, r, at_ps, time, tokens, prefill_tokens, sequences, admissions)
    if replica.end_at_ps >= 0:
        replica.queued_end_at_ps = end
        replica.queued_num_plain = plain
        replica.queued_prefill_tokens = prefill_tokens
    else:
        replica.start_at_ps, replica.end_at_ps = at_ps, end
        replica.num_plain = plain
        replica.prefill_tokens = prefill_tokens
        replica.done_at_ps = end
        if deployment.has_host:
            replica.done_at_ps += output_ps(deployment, sequences)
    if sim.log.size > 0:
        log_iteration(sim, r, at_ps, start, end, free_before)


@kernel
def count_items(sim, r, at_ps, iteration, first, plain, plain_context, before_admission):
    """Mark every item as computed and add up what the iteration costs.

    Returns (sequences, decoding sequences, decode tokens, prefill tokens, context tokens, attended pairs).
    """
    deployment, replica, batch = sim.deployment, sim.replicas[r], sim.replicas[r].batch
    sequences, decode_sequences, decode_tokens, prefill_tokens = plain, plain, plain, 0
    context, pairs = plain_context, 0
    for i in range(first, replica.num_running):
        n = iteration.tokens[i]
        if n == 0:
            continue
        if sim.log.size > 0:
            log_item(sim, r, at_ps, iteration, i)
        before = batch.computed[i]
        batch.computed[i] = before + n
        sequences += 1
        if is_decode_item(sim, r, i, before, i >= before_admission):
            decode_sequences += 1
            decode_tokens += n
            context += before + n
        else:
            prefill_tokens += n
            pairs += n * before + n * (n + 1) // 2
        replica.num_prefilling -= before < batch.target[i] <= before + n
        if deployment.async_scheduling and iteration.drafts[i] != NO_OUTPUT:
            batch.in_flight[i] += 1 + iteration.drafts[i]
    return sequences, decode_sequences, decode_tokens, prefill_tokens, context, pairs


@rare_kernel
def is_decode_item(sim, r, i, computed, is_admission):
    """Whether an item costs as much as decoding; so does the last token of a recomputation, alone in its chunk."""
    batch = sim.replicas[r].batch
    target = batch.target[i]
    if computed >= target:
        return True
    return not is_admission and computed == target - 1 and target > sim.requests[batch.request[i]].prompt_tokens


@rare_kernel
def launch_on_host(sim, r, at_ps, gpu_ps, tokens, prefill_tokens, sequences, admissions):
    """The host launches an iteration of so much GPU time; returns when it starts and ends on the GPU."""
    deployment, replica = sim.deployment, sim.replicas[r]
    launch, lead = host_ps(deployment, tokens, prefill_tokens, sequences, admissions)
    start = max(at_ps + lead, replica.end_at_ps)
    # A GPU that is faster than the host cannot finish before the host has launched the last kernel.
    end = max(start + gpu_ps, at_ps + launch)
    replica.free_at_ps = at_ps + launch
    if replica.end_at_ps >= 0:
        replica.queued_gpu_start_at_ps, replica.queued_gpu_ps = start, gpu_ps
        replica.queued_num_sequences = sequences
        # The host processes the output only after it has launched the next iteration.
        if replica.free_at_ps > replica.end_at_ps:
            replica.done_at_ps = replica.free_at_ps + output_ps(deployment, replica.num_sequences)
    else:
        replica.gpu_start_at_ps, replica.gpu_ps = start, gpu_ps
        replica.num_sequences = sequences
    return start, end
