"""Layout of the engine's memory: record types and the constants that index them.

Field names are the documentation; times are picoseconds.
"""

from __future__ import annotations

import numpy as np

from llmserve_env.engine.costs import MAX_SPECULATION_DEPTH
from llmserve_env.engine.deployment import MAX_CLASSES, MAX_RUNNING, MAX_TOKEN_BUDGET
from llmserve_env.engine.fleet import LIFE_DTYPE
from llmserve_env.engine.knobs import ENGINE_FIELDS
from llmserve_env.engine.tiers import NUM_TIERS

PENDING, WAITING, RUNNING, TRANSFERRING, FINISHED, REJECTED, ABANDONED = range(7)
STATUS_NAMES = ("PENDING", "WAITING", "RUNNING", "TRANSFERRING", "FINISHED", "REJECTED", "ABANDONED")
SPLIT_OFF, SPLIT_STARTING, SPLIT_UP = range(3)

SLOTS_PER_ROW = MAX_RUNNING + 16
"""A cache line more than a power of two: rows of exactly that length would fall into the same sets of a processor's
cache and evict each other."""
NO_OUTPUT = -1
"""Stands for the number of drafts of a prompt chunk that is not the last one, and so emits nothing."""
ITERATION_DTYPE = np.dtype(
    [
        ("tokens", "i4", (SLOTS_PER_ROW,)),
        ("drafts", "i4", (SLOTS_PER_ROW,)),
    ]
)
"""What each slot computes in one iteration: `tokens` in all, the last `drafts` of them proposed by the draft model."""

SLOT_FIELDS = (
    *("request", "known", "computed", "target", "last", "held_blocks", "keyed_blocks", "shared_blocks"),
    *("in_flight", "table_row", "stale"),
)
BATCH_DTYPE = np.dtype(
    [
        *((name, "i4", (SLOTS_PER_ROW,)) for name in SLOT_FIELDS),
        *((name, ITERATION_DTYPE) for name in ("executing", "queued")),
    ]
)
"""The running batch: one slot per request, in the order of admission.

`known` counts the tokens of the prompt and of the output so far, `last` those at the end; prefill ends when `computed`
reaches `target`. `in_flight` counts tokens that are scheduled but not known yet. `queued` is the iteration behind the
executing one, and `stale` lists preempted requests whose output is still in flight; both belong to async scheduling.
With prefix caching `keyed_blocks` counts the leading blocks that have a key, and `shared_blocks` those that may be
found by another admission. `table_row` is a permutation of the rows of the block table: a request keeps its row while
slots move.
"""

EVERY_BLOCK = 2**31 - 1
"""Stands for the number of shared blocks of a request any of whose blocks another admission may find."""

ENTRY_DTYPE = np.dtype(
    [
        ("key", "i8"),
        ("references", "i4"),
        ("num_blocks", "i4"),
        ("chain_next", "i4"),
        ("older", "i4"),
        ("newer", "i4"),
        ("unused", "i4"),
    ]
)
"""An entry of the prefix cache: a block that can be found by its key, or a run of free blocks that cannot be found.

`chain_next` links the hash chain of a key, `older` and `newer` the entries without references. `unused` is a stack
beside the entries, not a property of them: its first `num_unused` places are entries to be used again.
"""

TTFT_RING = 512
RECENT_WINDOWS = 10
"""Windows that sliding figures look back over."""
ITL_SUB_BINS = 64
ITL_BINS = 1280
ITL_UNIT_SHIFT = 20
"""Inter-token gaps are binned in units of 2**20 ps (about a microsecond), 64 bins per octave."""

FULL_GRAPH, PIECEWISE_GRAPH, NO_GRAPH = range(3)
NUM_LAUNCH_MODES = 3
"""How an iteration is launched, which decides the host's time for it."""
KNOTS_PER_CURVE = 64
"""A power of two; the places after the knots of a curve, and always the last one, hold NEVER."""
NUM_CURVES = MAX_SPECULATION_DEPTH + 2
PREFILL_CURVE = MAX_SPECULATION_DEPTH + 1
"""Curves of a tier: decode attention for each speculation depth, then prefill attention."""

DEPLOYMENT_DTYPE = np.dtype(
    [
        ("num_replicas", "i8"),
        ("num_prefill_replicas", "i8"),
        ("num_pools", "i8"),
        ("has_prefill_pool", "i8"),
        ("affinity_slack", "i8"),
        ("max_model_len", "i8"),
        ("long_prefill_threshold", "i8"),
        ("chunked_prefill", "i8"),
        ("reserve_full_prompt", "i8"),
        ("watermark_fraction", "f8"),
        ("prefix_caching", "i8"),
        ("async_scheduling", "i8"),
        ("draft_lookahead", "i8"),
        ("block_tokens", "i8"),
        ("block_shift", "i8"),
        ("block_bytes", "i8"),
        ("memory_limit_bytes", "i8"),
        ("activation_reserve_bytes", "i8"),
        ("activation_bytes_per_token", "i8"),
        ("logits_bytes_per_sequence", "i8"),
        ("kv_bytes_per_token", "i8"),
        ("kv_transfer_bytes_per_s", "i8"),
        ("weights_load_bytes_per_s", "i8"),
        ("weight_bytes", "i8", (NUM_TIERS,)),
        ("draft_bytes", "i8"),
        ("bring_up_ps", "i8"),
        ("restart_overhead_ps", "i8"),
        ("warm_up_at_cap", "i8"),
        ("num_blocks_override", "i8"),
        ("num_classes", "i8"),
        ("waiting_room", "i8", (MAX_CLASSES,)),
        ("step_every_iteration", "i8"),
        ("has_host", "i8"),
        ("front_end_ps", "i8"),
        ("answer_ps", "i8"),
        ("admission_ps", "i8"),
        ("graph_max_tokens", "i8"),
        ("launch_constants", "i8", (NUM_LAUNCH_MODES, 2)),
        ("output_constants", "i8", (2,)),
        ("sampling_constants", "i8", (2,)),
        ("tier_constants", "i8", (NUM_TIERS, 4)),
        ("draft_constants", "i8", (2,)),
        ("gemm", "i8", (NUM_TIERS + 1, MAX_TOKEN_BUDGET + 1)),
        ("curves", "i8", (NUM_TIERS * NUM_CURVES, 3, KNOTS_PER_CURVE)),
    ]
)

ENVIRONMENT_DTYPE = np.dtype(
    [
        ("now_ps", "i8"),
        ("seed", "u8"),
        ("num_requests", "i8"),
        ("next_arrival", "i8"),
        *ENGINE_FIELDS,
        ("split", "i8"),
        ("split_ready_at_ps", "i8"),
        ("split_since_ps", "i8"),
        ("reloading", "i8"),
        ("handoff_head", "i8"),
        ("judge_cursor", "i8"),
        ("fleet_due_at_ps", "i8"),
        ("num_active", "i8"),
        ("next_change", "i8"),
        ("num_changes", "i8"),
        ("busy_carry_ps", "i8"),
        ("ttft_count", "i8"),
        ("log_count", "i8"),
        ("fault", "i8"),
        ("ttft", "i8", (2, TTFT_RING)),
        ("num_windows", "i8"),
        ("arrival_rate_rps", "f8"),
        ("mean_prompt_tokens", "f8"),
        ("usual_rate_rps", "f8"),
        ("surge_age_windows", "i8"),
        ("recent_judged", "i8", (RECENT_WINDOWS,)),
        ("recent_met", "i8", (RECENT_WINDOWS,)),
    ]
)

REPLICA_DTYPE = np.dtype(
    [
        ("due_at_ps", "i8"),
        ("available_at_ps", "i8"),
        ("in_service", "i8"),
        ("is_prefill", "i8"),
        ("num_running", "i8"),
        ("num_waiting", "i8"),
        ("is_resting", "i8"),
        ("free_at_ps", "i8"),
        ("start_at_ps", "i8"),
        ("end_at_ps", "i8"),
        ("queued_end_at_ps", "i8"),
        ("done_at_ps", "i8"),
        ("gpu_start_at_ps", "i8"),
        ("queued_gpu_start_at_ps", "i8"),
        ("gpu_ps", "i8"),
        ("queued_gpu_ps", "i8"),
        ("num_sequences", "i8"),
        ("queued_num_sequences", "i8"),
        ("next_deadline_at_ps", "i8"),
        ("rest_gpu_ps", "i8"),
        ("rest_growth_ps", "i8"),
        ("rest_iterations", "i8"),
        ("knot", "i8"),
        ("tier", "i8"),
        ("life", LIFE_DTYPE),
        ("pool_is_stale", "i8"),
        ("may_queue", "i8"),
        ("num_plain", "i8"),
        ("queued_num_plain", "i8"),
        ("num_prefilling", "i8"),
        ("num_stalled", "i8"),
        ("num_stale", "i8"),
        ("prefill_tokens", "i8"),
        ("queued_prefill_tokens", "i8"),
        ("num_blocks", "i8"),
        ("used_blocks", "i8"),
        ("reserved_bytes", "i8"),
        ("lru_head", "i8"),
        ("lru_tail", "i8"),
        ("num_keyless", "i8"),
        ("num_unused", "i8"),
        ("next_entry", "i8"),
        ("num_tracked", "i8"),
        ("num_emitting", "i4", (MAX_SPECULATION_DEPTH + 2,)),
        ("head", "i8", (MAX_CLASSES,)),
        ("tail", "i8", (MAX_CLASSES,)),
        ("fresh_waiting", "i4", (MAX_CLASSES,)),
        ("batch", BATCH_DTYPE),
    ]
)

REQUEST_DTYPE = np.dtype(
    [
        ("arrival_at_ps", "i8"),
        ("slo_at_ps", "i8"),
        ("deadline_at_ps", "i8"),
        ("acceptance", "f8"),
        ("prompt_tokens", "i4"),
        ("output_tokens", "i4"),
        ("priority", "i4"),
        ("prefix_blocks", "i4"),
        ("session_root", "i4"),
        ("padding", "i4"),
        ("prefix_stream", "i8"),
        ("own_stream", "i8"),
    ]
)

PROGRESS_DTYPE = np.dtype(
    [
        ("first_token_at_ps", "i8"),
        ("finished_at_ps", "i8"),
        ("last_token_at_ps", "i8"),
        ("handoff_at_ps", "i8"),
        ("emitted", "i4"),
        ("preemptions", "i4"),
        ("next", "i4"),
        ("previous", "i4"),
        ("home", "i4"),
        ("spare", "i4"),
        ("status", "i1"),
        ("judged", "i1"),
        ("is_fresh", "i1"),
        ("is_transferred", "i1"),
        ("is_stalled", "i1"),
        ("stale_items", "i1"),
        ("tier", "i1"),
        ("padding", "i1"),
    ]
)

WINDOW_DTYPE = np.dtype(
    [
        ("arrived", "i8"),
        ("arrived_prompt_tokens", "i8"),
        ("finished", "i8"),
        ("rejected", "i8"),
        ("abandoned", "i8"),
        ("preemptions", "i8"),
        ("ooms", "i8"),
        ("reloads", "i8"),
        ("iterations", "i8"),
        ("output_tokens", "i8"),
        ("prefill_tokens", "i8"),
        ("cached_tokens", "i8"),
        ("drafted_tokens", "i8"),
        ("accepted_tokens", "i8"),
        ("busy_ps", "i8"),
        ("peak_memory_bytes", "i8"),
        ("reserved_byte_ms", "i8"),
        ("opened_at_ps", "i8"),
        ("in_service_ps", "i8"),
        ("itl_samples", "i8"),
        ("tpot_sum_ps", "i8"),
        ("tpot_requests", "i8"),
        ("arrived_by_class", "i8", (MAX_CLASSES,)),
        ("judged_by_class", "i8", (MAX_CLASSES,)),
        ("wait_ppm_by_class", "i8", (MAX_CLASSES,)),
        ("met_by_class_tier", "i8", (MAX_CLASSES * NUM_TIERS,)),
        ("finished_by_class_tier", "i8", (MAX_CLASSES * NUM_TIERS,)),
        ("finished_tokens_by_class_tier", "i8", (MAX_CLASSES * NUM_TIERS,)),
        ("itl_first", "i8"),
        ("itl_last", "i8"),
        ("itl", "i8", (ITL_BINS,)),
    ]
)
COUNTERS_DTYPE = np.dtype([(name, WINDOW_DTYPE[name]) for name in (WINDOW_DTYPE.names or ())[:-1]])
"""A window without its histogram, which comes last: a tenth of the bytes, for records of every step."""
