from __future__ import annotations

import numpy as np
import pytest

from llmserve_env.errors import ConfigError
from llmserve_env.units import NEVER_PS, PS_PER_MS, PS_PER_S
from llmserve_env.workloads.traces.trace import Trace
from tests.workloads.traces.conftest import Loader


@pytest.fixture
def trace(trace_of: Loader) -> Trace:
    return trace_of(
        arrival_s=[100, 101.5, 101.5, 104, 110],
        prompt_tokens=[5, 6, 7, 8, 9],
        output_tokens=[1, 2, 3, 4, 5],
        tenant=["b", "a", "a", "c", "a"],
        priority=[0, 1, 0, 1, 2],
        session=["s", "", "s", "t", ""],
        prefix=["p", "p", "", "q", ""],
        prefix_tokens=[4, 4, 0, 2, 0],
    )


def test_replay_gives_every_request_at_its_recorded_time(trace: Trace) -> None:
    table = trace.to_request_table()
    assert table.arrival_at_ps.tolist() == [t * PS_PER_S // 2 for t in (0, 3, 3, 8, 20)]
    assert table.prompt_tokens.tolist() == [5, 6, 7, 8, 9]
    assert table.output_tokens.tolist() == [1, 2, 3, 4, 5]
    assert table.priority.tolist() == [0, 1, 0, 1, 2]
    assert [trace.tenant_names[i] for i in table.tenant] == ["b", "a", "a", "c", "a"]
    assert table.session_id.tolist() == [0, -1, 0, 1, -1]
    assert table.prefix_id.tolist() == [0, 0, -1, 1, -1]
    assert table.prefix_tokens.tolist() == [4, 4, 0, 2, 0]
    assert set(table.ttft_slo_ps.tolist()) == set(table.patience_ps.tolist()) == {NEVER_PS}


def test_the_busiest_tenant_is_the_first(trace: Trace) -> None:
    assert trace.tenant_names[0] == "a"


def test_scale_compresses_time_and_keeps_every_request(trace: Trace) -> None:
    table = trace.to_request_table(scale=4.0)
    assert len(table) == len(trace)
    assert table.arrival_at_ps[-1] == 10 * PS_PER_S // 4


def test_a_part_begins_at_zero_and_leaves_out_its_end(trace: Trace) -> None:
    table = trace.to_request_table(start_s=1.0, stop_s=4.0)
    assert table.arrival_at_ps.tolist() == [PS_PER_S // 2] * 2
    parts = [trace.to_request_table(start_s=a, stop_s=b) for a, b in ((0.0, 1.5), (1.5, 4.0), (4.0, None))]
    assert sum(map(len, parts)) == len(trace)


def test_promises_are_for_all_or_by_priority(trace: Trace) -> None:
    assert set(trace.to_request_table(ttft_slo_ms=250.0).ttft_slo_ps.tolist()) == {250 * PS_PER_MS}
    table = trace.to_request_table(ttft_slo_ms={0: 100.0, 1: 200.0, 2: 300.0}, patience_s=2.0, acceptance=0.5)
    assert (table.ttft_slo_ps // (100 * PS_PER_MS) - 1).tolist() == table.priority.tolist()
    assert set(table.patience_ps.tolist()) == {2 * PS_PER_S}
    assert np.all(table.acceptance == 0.5)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"scale": 0.0}, "scale must be a positive number"),
        ({"scale": float("inf")}, "scale must be a positive number"),
        ({"start_s": -1.0}, "start_s must be 0 or later"),
        ({"start_s": 5.0, "stop_s": 5.0}, "before stop_s"),
        ({"ttft_slo_ms": {0: 100.0}}, r"has no entry for priorities \[1, 2\]"),
        ({"scale": 1e-9}, "is too long"),
    ],
)
def test_a_replay_that_makes_no_sense_is_refused(trace: Trace, options: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        trace.to_request_table(**options)  # type: ignore[arg-type]


def test_a_recording_longer_than_any_episode_is_replayed_in_parts(trace_of: Loader) -> None:
    last_s = 121 * 86_400
    trace = trace_of(arrival_s=[0, last_s, last_s + 1], prompt_tokens=[1] * 3, output_tokens=[1] * 3)
    with pytest.raises(ConfigError, match="is too long"):
        trace.to_request_table()
    table = trace.to_request_table(start_s=last_s - 10.0)
    assert table.arrival_at_ps.tolist() == [10 * PS_PER_S, 11 * PS_PER_S]
