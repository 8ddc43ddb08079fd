"""How long an iteration takes beside a host, and which of the two clocks binds; docs/engine.md (Two clocks)."""

from __future__ import annotations

from dataclasses import dataclass

from llmserve_env.engine.costs import GpuCosts, HostTime
from llmserve_env.profiles.batches import Batch
from llmserve_env.profiles.host import Host
from llmserve_env.profiles.prediction import predict_ps
from llmserve_env.units import PS_PER_MS

GRAPH_MAX_TOKENS = 512
"""Largest iteration that vLLM captures as a CUDA graph by default on a GPU of this size."""


@dataclass(frozen=True, slots=True)
class IterationTime:
    """One iteration among others like it."""

    gpu_ms: float
    host_ms: float
    """Scheduling, launching, and taking the output in."""
    iteration_ms: float
    """From one such iteration to the next."""

    @property
    def bound_by(self) -> str:
        """The clock that decides: with asynchronous scheduling, the slower one."""
        return "host" if self.host_ms > self.gpu_ms else "GPU"


def iteration_time(
    costs: GpuCosts,
    tier: str,
    batch: Batch,
    host: Host | None = None,
    depth: int = 0,
    is_async: bool = True,
    graph_max_tokens: int = GRAPH_MAX_TOKENS,
) -> IterationTime:
    """Times of an iteration beside a host; without one, the GPU alone takes time.

    Args:
        costs: of the profile.
        tier: name of the quantization tier.
        batch: what is in the iteration; a prompt chunk without a past is a newly admitted request.
        host: the CPU beside the GPU.
        depth: draft tokens verified per decoding sequence.
        is_async: whether the next iteration is scheduled while this one runs; otherwise the clocks add up.
        graph_max_tokens: largest iteration that is captured as a CUDA graph.
    """
    if host is None:
        gpu_ms = predict_ps(costs, tier, batch.decode, batch.prefill, depth) / PS_PER_MS
        return IterationTime(gpu_ms, 0.0, gpu_ms)
    times = host.costs()
    sequences = batch.num_sequences
    gpu_ps = predict_ps(host.gpu_costs(costs), tier, batch.decode, batch.prefill, depth)
    gpu_ps += _ps(times.sampling, sequences)
    admitted_ps = times.per_admission_ps * batch.num_admissions
    graph_ps = _ps(times.full_graph, sequences) + admitted_ps
    is_small = batch.num_tokens(depth) <= graph_max_tokens
    mode = (times.piecewise_graph if batch.prefill else times.full_graph) if is_small else times.no_graph
    launch_ps, output_ps = _ps(mode, sequences) + admitted_ps, _ps(times.output, sequences)
    host_ps = launch_ps + output_ps
    # Scheduled one by one, the GPU starts with the first kernel and ends no sooner than the last one is launched.
    alone_ps = max(min(launch_ps, graph_ps) + gpu_ps, launch_ps) + output_ps
    iteration_ps = max(gpu_ps, host_ps) if is_async else alone_ps
    return IterationTime(*(ps / PS_PER_MS for ps in (gpu_ps, host_ps, iteration_ps)))


def _ps(time: HostTime, sequences: int) -> int:
    return time.base_ps + time.per_sequence_ps * sequences
