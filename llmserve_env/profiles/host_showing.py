"""A host as text: its times, and which clock binds in typical iterations of a profile."""

from __future__ import annotations

from llmserve_env.profiles.batches import Batch
from llmserve_env.profiles.host import BatchTime, Host
from llmserve_env.profiles.iteration_time import iteration_time
from llmserve_env.profiles.schema import Profile
from llmserve_env.profiles.showing import aligned

BATCHES = (
    Batch(decode=((1, 1024),)),
    Batch(decode=((32, 1024),)),
    Batch(decode=((128, 1024),)),
    Batch(decode=((32, 1024),), prefill=((128, 0),)),
    Batch(decode=((32, 1024),), prefill=((512, 0),)),
    Batch(decode=((32, 1024),), prefill=((2016, 0),)),
    Batch(prefill=((8192, 0),)),
)


def describe_host(host: Host, profile: Profile) -> str:
    """The host's times and provenance, and its clock beside the GPU's."""
    first, costs, host = next(iter(profile.tiers)), profile.costs(), host.for_model(profile.model)
    rows = []
    for batch in BATCHES:
        time = iteration_time(costs, first, batch, host)
        figures = (f"{ms:.2f}" for ms in (time.gpu_ms, time.host_ms, time.iteration_ms))
        rows.append([batch.describe(), *figures, time.bound_by])
    lines = [
        f"host {host.name}: {host.engine}; {host.machine}",
        f"  source: {host.provenance}",
        f"  launch: full graph {_text(host.full_graph)}, piecewise {_text(host.piecewise_graph)}, "
        f"no graph {_text(host.no_graph)}, + {host.per_admission_ms:g} ms per admitted request",
        f"  output {_text(host.output)}; front end {host.front_end_ms:g} ms, answer {host.answer_ms:g} ms",
        f"  on the GPU: sampling {_text(host.sampling)}, decode attention x {host.decode_attention:g}",
        *aligned([f"{first}, asynchronous, ms", "GPU", "host", "iteration", "binds"], rows),
    ]
    return "\n".join(lines)


def _text(time: BatchTime) -> str:
    return f"{time.base_ms:g} ms + {1e3 * time.per_sequence_ms:g} us per sequence"
