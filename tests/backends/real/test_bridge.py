"""From recorded iterations to a profile, and from two episodes to their errors."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from llmserve_env.backends.real import calibration
from llmserve_env.backends.real.calibration import (
    Probe,
    cpu_core,
    front_end_of,
    host_of,
    pace,
    profile_of,
    scaled_profile,
)
from llmserve_env.backends.real.plugin.llmserve_steering.control import (
    Status,
    Wanted,
    read_status,
    read_wanted,
    write_json,
    write_wanted,
)
from llmserve_env.backends.real.prometheus import read_totals
from llmserve_env.backends.real.recording import read_recording
from llmserve_env.backends.real.tasks import real_task
from llmserve_env.engine.knobs import default_knobs
from llmserve_env.env.episode_batch import EpisodeBatch
from llmserve_env.errors import ProviderError
from llmserve_env.evaluation.live_comparison import LiveComparison, fleet_like, phase_errors, play_sim, report
from llmserve_env.evaluation.live_comparison_text import phase_lines, save_plot, window_lines
from llmserve_env.profiles import load_profile
from llmserve_env.profiles.architectures import Architecture
from llmserve_env.profiles.schema import FrontEnd
from llmserve_env.tasks.task import Task
from llmserve_env.tasks.variants import at_rate, with_changes

STATUS = Status(
    generation=3,
    batch_cap=32,
    token_budget=2048,
    speculation_depth=0,
    num_blocks=511,
    withheld_blocks=0,
    max_batch_cap=64,
    max_token_budget=2048,
    max_speculation_depth=0,
    block_tokens=32,
    max_model_len=4096,
    vocabulary=2048,
    async_scheduling=False,
    prefix_caching=False,
    iterations=10,
    busy_s=0.5,
)
TINY = Architecture("tiny", 512, 8, 8, 4, 64, 2048, 2048, False)


def law_ms(row: dict[str, Any]) -> float:
    """What an iteration takes on a machine that we made up."""
    return 5.0 + 0.5 * float(row["decoding"] + row["prefill_tokens"]) + 0.002 * float(row["context"])


def recorded(path: Path, count: int = 600) -> Path:
    """Iterations of that machine, back to back, with an idle second in the middle."""
    rng = np.random.default_rng(0)
    lines, now_s = [], 100.0
    for i in range(count):
        prefill = int(rng.integers(8, 200)) if i % 4 == 0 else 0
        decoding = int(rng.integers(1, 40))
        row: dict[str, Any] = {
            "decoding": decoding,
            "context": decoding * int(rng.integers(50, 300)),
            "chunks": int(prefill > 0),
            "prefill_tokens": prefill,
            "pairs": prefill * (prefill + 1) // 2,
            "drafts": 0,
            "first": [f"cmpl-llmserve-9-{i}-0-ab"] if prefill else [],
            "added": {f"cmpl-llmserve-9-{i}-0-ab": now_s - 0.001, "cmpl-somebody-else": now_s} if prefill else {},
            "left": 0 if i == count // 2 else 3,
        }
        end_s = now_s + law_ms(row) / 1e3
        lines.append(json.dumps({**row, "start": now_s, "end": end_s}))
        now_s = end_s + (1.0 if i == count // 2 else 0.0)
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_iterations_last_from_one_end_to_the_next_and_idle_time_is_nobodys(tmp_path: Path) -> None:
    recording = read_recording(recorded(tmp_path / "iterations.jsonl"), "FP16")
    assert len(recording.iterations) == 600
    for iteration in recording.iterations:
        row = {name: getattr(iteration, name) for name in ("decoding", "prefill_tokens")}
        assert iteration.ms == pytest.approx(law_ms({**row, "context": iteration.context_tokens}), abs=1e-6)
    assert set(recording.seen_at_s) == set(recording.answered_at_s) == set(range(0, 600, 4))


def test_a_profile_fitted_to_iterations_says_what_they_took(tmp_path: Path) -> None:
    recording = read_recording(recorded(tmp_path / "iterations.jsonl"), "FP16")
    base, gpu = load_profile("a100-40gb.llama-3-8b"), cpu_core(8 * 10**9, 0.05)
    found = Probe(recording, FrontEnd(request_ms=3.0, token_ms=4.0), STATUS, 1.0)
    profile = profile_of(found, base, gpu, TINY, "mine", "2026-01-01", 4)
    held_out = profile.tiers["FP16"].held_out
    assert held_out is not None and held_out.median_pct < 2.0
    assert pace(profile, "FP16", recording.iterations) == pytest.approx(1.0, abs=0.01)
    assert pace(scaled_profile(profile, 2.0), "FP16", recording.iterations) == pytest.approx(0.5, abs=0.01)
    assert profile.front_end == found.front_end and profile.gpu.name == "one CPU core"
    assert profile.model.kv_bytes_per_token == 2 * TINY.kv_bytes_per_token


def timed(path: Path, blocks: bool) -> Path:
    """The same machine beside a host: to launch 2 ms, 0.05 ms per sequence, 0.5 ms per admission; 0.3 ms after."""
    rows = [json.loads(line) for line in recorded(path).read_text(encoding="utf-8").splitlines()]
    now_s = 100.0
    for row in rows:
        sequences, row["admitted"] = row["decoding"] + row["chunks"], row["chunks"]
        launch_ms = 2.0 + 0.05 * sequences + 0.5 * row["admitted"]
        row["start"], row["device_ms"], row["blocks"] = now_s, law_ms(row), blocks
        # A CPU computes inside the call; a GPU after it, and here longer than the call takes.
        row["launched"] = now_s + (launch_ms + (law_ms(row) if blocks else 0.0)) / 1e3
        row["taken"] = now_s + (launch_ms + law_ms(row)) / 1e3
        row["end"] = now_s = row["taken"] + 0.3e-3
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


@pytest.mark.parametrize("blocks", [True, False])
def test_device_and_host_are_fitted_apart_on_a_cpu_and_on_a_gpu(tmp_path: Path, blocks: bool) -> None:
    recording = read_recording(timed(tmp_path / "iterations.jsonl", blocks), "FP16")
    for iteration in recording.iterations:
        row = {name: getattr(iteration, name) for name in ("decoding", "prefill_tokens")}
        assert iteration.ms == pytest.approx(law_ms({**row, "context": iteration.context_tokens}), abs=1e-6)
    host = host_of(recording, FrontEnd(request_ms=3.0, token_ms=4.0), 0, "mine", "made up")
    assert host.no_graph.base_ms == pytest.approx(2.0, abs=0.05)
    assert host.no_graph.per_sequence_ms == pytest.approx(0.05, abs=0.005)
    assert host.per_admission_ms == pytest.approx(0.5, abs=0.05)
    assert host.output.base_ms == pytest.approx(0.3, abs=0.01)
    assert (host.front_end_ms, host.answer_ms) == (3.0, 4.0)
    # No graph was captured, so every launch is of one kind.
    assert host.full_graph.base_ms == pytest.approx(host.no_graph.base_ms, abs=0.05)


def test_a_gpu_that_waits_for_its_kernels_tells_nothing_about_itself(tmp_path: Path) -> None:
    path = timed(tmp_path / "iterations.jsonl", blocks=False)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for row in rows[::2]:
        row["launched"] = row["start"] + 2e-3 * row["device_ms"]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    recording = read_recording(path, "FP16")
    assert (len(recording.iterations), len(recording.launches)) == (300, 600)


def test_without_timed_launches_there_is_no_host_to_fit(tmp_path: Path) -> None:
    recording = read_recording(recorded(tmp_path / "iterations.jsonl"), "FP16")
    with pytest.raises(ProviderError, match="did not time its launches"):
        host_of(recording, FrontEnd(request_ms=3.0, token_ms=4.0), 0, "mine", "made up")


def test_the_front_end_is_what_lies_outside_the_engine(tmp_path: Path) -> None:
    recording = read_recording(recorded(tmp_path / "iterations.jsonl"), "FP16")
    sent = {i: at_s - 0.007 for i, at_s in recording.seen_at_s.items()}
    received = {i: at_s + 0.011 for i, at_s in recording.answered_at_s.items()}
    found = front_end_of(recording, sent, received)
    assert [found.request_ms, found.token_ms] == pytest.approx([7.0, 11.0])
    with pytest.raises(ProviderError, match="recorded none"):
        front_end_of(recording, {}, {})


def test_no_recording_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="no recorded iterations"):
        read_recording(tmp_path / "nothing.jsonl", "FP16")


def steady(_batch: EpisodeBatch, _step: int) -> Any:
    return default_knobs()


def short(load: float = 1.0) -> Task:
    return at_rate(with_changes(real_task("tiny_server"), steps=35), load)


def test_the_probing_load_fills_every_batch_cap_with_traffic_that_the_engine_can_just_carry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = count(0.0, 4.0)
    monkeypatch.setattr(calibration, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    found = list(calibration.waves(np.random.default_rng(0), STATUS, rounds=1))
    indices = [call.index for wave in found for call in wave.calls]
    assert indices == list(range(len(indices)))
    closed, opened = found[: -len(calibration.OPEN_PARTS)], found[-len(calibration.OPEN_PARTS) :]
    assert max(len(wave.calls) for wave in closed) == STATUS.max_batch_cap
    # The largest wave of 64 was over after one tick of the clock: 16 requests per second.
    assert [len(wave.calls) for wave in opened] == [40, 160, 160, 160]
    assert [wave.batch_cap for wave in opened] == [64, 64, 32, 16]
    assert [wave.is_calm for wave in opened] == [True, False, False, False]


def compared() -> LiveComparison:
    """The simulator against itself at half the speed."""
    task, profile = short(), load_profile("a100-40gb.llama-3-8b")
    nothing, some = FrontEnd(request_ms=0.0, token_ms=0.0), FrontEnd(request_ms=1.0, token_ms=2.0)
    real = play_sim(task, fleet_like(task, profile, STATUS), nothing, 1, steady)
    sim = play_sim(task, fleet_like(task, scaled_profile(profile, 2.0), STATUS), nothing, 1, steady)
    return LiveComparison(task.id, 1, real, sim, phase_errors(task, 1, real, sim), 1.0, some, 0.0, True)


def test_errors_are_those_of_a_simulator_that_is_too_slow() -> None:
    comparison = compared()
    (phase,) = comparison.phases
    assert phase.rate_rps == 5.0 and phase.windows == (0, 30) and phase.requests > 100
    assert phase.errors["ttft_ms"] > 0.8 and phase.errors["e2e_ms"] > 0.8
    assert abs(phase.errors["throughput_tps"]) < 0.1
    means = report([comparison])["mean_errors"]
    assert means["profile"] == {}
    assert means["run"][5.0]["itl_ms"] == pytest.approx(phase.errors["itl_ms"], rel=1e-6)


def test_equal_sides_have_no_error_and_the_front_end_is_added_to_the_simulated_one() -> None:
    task, profile = short(), load_profile("a100-40gb.llama-3-8b")
    fleet = fleet_like(task, profile, STATUS)
    bare = play_sim(task, fleet, FrontEnd(request_ms=0.0, token_ms=0.0), 1, steady)
    seen = play_sim(task, fleet, FrontEnd(request_ms=3.0, token_ms=4.0), 1, steady)
    assert np.nanmax(np.abs(seen.ttft_ms - bare.ttft_ms - 7.0)) < 1e-6
    assert set(phase_errors(task, 1, bare, bare)[0].errors.values()) == {0.0}


def test_a_comparison_can_be_read_and_seen(tmp_path: Path) -> None:
    comparison = compared()
    assert len(list(window_lines(comparison))) == 36
    assert "5.00" in "\n".join(phase_lines(comparison))
    save_plot([comparison], tmp_path / "both.png")
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")


def test_a_task_is_moved_to_another_profile() -> None:
    deployment = {"profile": "h200-141gb.llama-3-8b", "tiers": ["FP16", "INT8", "INT4"]}
    moved = with_changes(real_task("tiny_server"), deployment=deployment)
    assert moved.fleet.costs.price_usd_per_hour == load_profile("h200-141gb.llama-3-8b").costs().price_usd_per_hour


def test_what_is_wanted_and_what_is_done_travel_through_files(tmp_path: Path) -> None:
    write_wanted(tmp_path, Wanted(generation=2, batch_cap=7, kv_budget_fraction=0.4))
    assert read_wanted(tmp_path) == Wanted(generation=2, batch_cap=7, kv_budget_fraction=0.4)
    write_json(tmp_path / "status.json", {name: getattr(STATUS, name) for name in Status.__dataclass_fields__})
    assert read_status(tmp_path) == STATUS
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".json"] == []


def test_metrics_are_summed_over_labels() -> None:
    text = '# HELP x\nvllm:a{engine="0"} 1.0\nvllm:a{engine="1"} 2.5\nvllm:b 4e3\nother 9\n'
    assert read_totals(text) == {"vllm:a": 3.5, "vllm:b": 4000.0}
