"""Iteration time from the cost tables, in integer picoseconds."""

from __future__ import annotations

from llmserve_env.engine.kernels.compilation import kernel, rare_kernel
from llmserve_env.engine.layout import FULL_GRAPH, KNOTS_PER_CURVE, NO_GRAPH, NUM_CURVES, PIECEWISE_GRAPH, PREFILL_CURVE
from llmserve_env.engine.tiers import NUM_TIERS


@kernel
def segment(curve, x):
    """Index of the last knot at or below x (the first one for smaller x).

    A binary search without branches, because a processor could not predict them.
    """
    low, step = 0, KNOTS_PER_CURVE >> 1
    while step > 0:
        low += step if curve[0, low + step] <= x else 0
        step >>= 1
    return low


@kernel
def segment_near(curve, x, guess):
    """`segment`, when its result is likely to be `guess`."""
    return guess if curve[0, guess] <= x < curve[0, guess + 1] else segment(curve, x)


@kernel
def on_segment(curve, i, x):
    """Value of a curve at x > 0, beyond its knot i."""
    return curve[1, i] + curve[2, i] * (x - curve[0, i])


@kernel
def evaluate(curve, x):
    """Value of a piecewise-linear curve; 0 at 0."""
    if x == 0:
        return 0
    return on_segment(curve, segment(curve, x), x)


@rare_kernel
def draft_ps(deployment, depth, decode_sequences, context_tokens, prefill_tokens):
    """The draft model's share: one pass per proposed token, and its own prefill."""
    constants = deployment.draft_constants
    time = 0
    if decode_sequences > 0:
        time += depth * (constants[0] + deployment.gemm[NUM_TIERS, decode_sequences] + constants[1] * context_tokens)
    if prefill_tokens > 0:
        time += deployment.gemm[NUM_TIERS, prefill_tokens]
    return time


@kernel
def without_attention_ps(deployment, tier, sequences, decode_tokens, prefill_tokens):
    """What an iteration costs besides attention and the draft model."""
    constants = deployment.tier_constants
    return (
        constants[tier, 0]
        + constants[tier, 1] * sequences
        + constants[tier, 2] * decode_tokens
        + constants[tier, 3] * prefill_tokens
        + deployment.gemm[tier, decode_tokens + prefill_tokens]
        + deployment.sampling_constants[0]
        + deployment.sampling_constants[1] * sequences
    )


@kernel
def iteration_ps(
    deployment, tier, depth, sequences, decode_sequences, decode_tokens, prefill_tokens, context_tokens, pairs
):
    """The cost model of docs/engine.md."""
    time = without_attention_ps(deployment, tier, sequences, decode_tokens, prefill_tokens)
    time += evaluate(deployment.curves[tier * NUM_CURVES + depth], context_tokens)
    if pairs > 0:
        time += evaluate(deployment.curves[tier * NUM_CURVES + PREFILL_CURVE], pairs)
    if depth > 0:
        time += draft_ps(deployment, depth, decode_sequences, context_tokens, prefill_tokens)
    return time


@kernel
def launch_mode(deployment, tokens, prefill_tokens):
    """How an iteration is launched: as one graph, piece by piece around attention, or kernel by kernel."""
    if tokens > deployment.graph_max_tokens:
        return NO_GRAPH
    return FULL_GRAPH if prefill_tokens == 0 else PIECEWISE_GRAPH


@kernel
def launch_ps(deployment, mode, sequences, admissions):
    """Host time to schedule and launch an iteration."""
    constants = deployment.launch_constants
    return constants[mode, 0] + constants[mode, 1] * sequences + deployment.admission_ps * admissions


@kernel
def host_ps(deployment, tokens, prefill_tokens, sequences, admissions):
    """(time to schedule and launch an iteration, part of it before the GPU has its first kernel).

    A graph is launched as a whole; in the other modes the GPU begins while the host is still launching.
    """
    launch = launch_ps(deployment, launch_mode(deployment, tokens, prefill_tokens), sequences, admissions)
    return launch, min(launch, launch_ps(deployment, FULL_GRAPH, sequences, admissions))


@kernel
def output_ps(deployment, sequences):
    """Host time to process the output of an iteration."""
    return deployment.output_constants[0] + deployment.output_constants[1] * sequences
