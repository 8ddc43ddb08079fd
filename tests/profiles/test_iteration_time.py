"""The two clocks of one iteration, as `llmserve profile predict` tells them, are those of the engine."""

from __future__ import annotations

import pytest

from llmserve_env.engine.deployment import Deployment
from llmserve_env.engine.engine import Engine
from llmserve_env.engine.knobs import ServingKnobs
from llmserve_env.profiles import load_profile, predict
from llmserve_env.profiles.batches import Batch
from llmserve_env.profiles.host import BatchTime, Host, load_host
from llmserve_env.profiles.iteration_time import iteration_time
from llmserve_env.request_table import RequestTable
from llmserve_env.units import PS_PER_MS, PS_PER_S

PROFILE = load_profile("h200-141gb.llama-3-8b")
RECORDED = load_host("xeon-h200-vllm-0.26")
SLOW = RECORDED.model_copy(update={"full_graph": BatchTime(base_ms=30.0, per_sequence_ms=0.1)})
SEQUENCES, PROMPT, OUTPUT = 16, 64, 400


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("host", [RECORDED, SLOW])
def test_a_decode_iteration_takes_as_long_in_the_engine(host: Host, is_async: bool) -> None:
    deployment = Deployment(
        costs=host.gpu_costs(PROFILE.costs()),
        num_blocks_override=4_000,
        host=host.costs(),
        async_scheduling=is_async,
    )
    table = RequestTable.of([0] * SEQUENCES, [PROMPT] * SEQUENCES, [OUTPUT] * SEQUENCES)
    engine = Engine(deployment, table, 0)
    engine.serve(ServingKnobs(), 1_000 * PS_PER_S)
    progress = engine.request_records()
    taken_ps = progress["finished_at_ps"] - progress["first_token_at_ps"]
    batch = Batch(decode=((SEQUENCES, PROMPT + OUTPUT // 2),))
    expected_ms = iteration_time(PROFILE.costs(), "FP16", batch, host, is_async=is_async).iteration_ms
    assert taken_ps.mean() / (OUTPUT - 1) / PS_PER_MS == pytest.approx(expected_ms, rel=0.01)


def test_without_a_host_an_iteration_takes_what_the_gpu_takes() -> None:
    time = iteration_time(PROFILE.costs(), "FP16", Batch(decode=((8, 100),)))
    assert time.gpu_ms == time.iteration_ms == predict(PROFILE, "FP16", [(8, 100)])
    assert (time.host_ms, time.bound_by) == (0.0, "GPU")


def test_the_launch_mode_decides_the_hosts_time() -> None:
    def host_ms(*prefill: tuple[int, int]) -> float:
        batch = Batch(decode=((8, 100),), prefill=prefill)
        return iteration_time(PROFILE.costs(), "FP16", batch, RECORDED).host_ms

    # The same sequences: a chunk with a past is no admission, one without is.
    assert host_ms((64, 16)) < host_ms((64, 0)) < host_ms((600, 16)) < host_ms((600, 0))


def test_one_after_the_other_the_clocks_add_up() -> None:
    batch = Batch(decode=((8, 100),))
    ahead, alone = (iteration_time(PROFILE.costs(), "FP16", batch, RECORDED, is_async=a) for a in (True, False))
    assert ahead.iteration_ms == max(ahead.gpu_ms, ahead.host_ms)
    assert alone.iteration_ms == pytest.approx(alone.gpu_ms + alone.host_ms)
