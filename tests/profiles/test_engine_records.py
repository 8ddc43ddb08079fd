"""Profiles from what a real engine recorded: benchmark results and iterations."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from llmserve_env.errors import ProfileError
from llmserve_env.profiles import Profile, load_profile, predict
from llmserve_env.profiles.architectures import architecture_from_config
from llmserve_env.profiles.calibration import calibrate, fit_iterations, predicted_ms
from llmserve_env.profiles.engine_results import read_bench, read_iterations
from llmserve_env.profiles.fitting import Iteration
from tests.recordings import VIRTUAL

TINY = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 512,
    "vocab_size": 2000,
}


@pytest.fixture(scope="module")
def base() -> Profile:
    return load_profile("a100-40gb.llama-3-8b")


def write(folder: Path, name: str, result: dict[str, Any]) -> Path:
    path = folder / name
    path.write_text(json.dumps(result))
    return path


def closed_loop_tpot_ms(base: Profile, sequences: int, prompt: int, output: int) -> float:
    """While a request decodes, each of the others has its prompt computed once."""
    decode = [(sequences, prompt + output // 2)]
    alone, share = predict(base, "FP16", decode), (sequences - 1) / (output - 1)
    prompts = max(1, round(share))
    mixed = predict(base, "FP16", decode, [(prompt, 0)] * prompts)
    return alone + min(share / prompts, 1.0) * (mixed - alone)


def serve_result(base: Profile, sequences: int, prompt: int, output: int, factor: float) -> dict[str, Any]:
    return {
        "max_concurrency": sequences,
        "completed": 200,
        "total_input_tokens": 200 * prompt,
        "total_output_tokens": 200 * output,
        "mean_tpot_ms": factor * closed_loop_tpot_ms(base, sequences, prompt, output),
        "median_ttft_ms": factor * predict(base, "FP16", [], [(prompt, 0)]),
    }


def test_an_engine_a_fifth_slower_is_seen_to_be_so(base: Profile, tmp_path: Path) -> None:
    shapes = ((1, 512, 128), (16, 512, 128), (64, 256, 64), (128, 1024, 128), (1, 4000, 16))
    paths = [write(tmp_path, f"{i}.json", serve_result(base, *s, factor=1.2)) for i, s in enumerate(shapes)]
    observations = [o for path in paths for o in read_bench(path, "FP16")]
    assert len(observations) == 7
    profile, _ = calibrate(base, "FP16", observations, "mine.llama-3-8b", "2026-01-01")
    for decode, prefill in (([(32, 700)], []), ([(100, 400)], []), ([], [(2048, 0)])):
        assert predict(profile, "FP16", decode, prefill) == pytest.approx(
            1.2 * predict(base, "FP16", decode, prefill), rel=0.05
        )
    assert profile.tiers["FP16"].origin == "measured"
    assert profile.tiers["INT8"].origin == "derived"
    assert profile.name == "mine.llama-3-8b"


def test_results_of_a_loaded_server_bring_a_slower_base_closer_to_it(base: Profile, tmp_path: Path) -> None:
    shapes = ((1, 1024, 256), (32, 1024, 256), (128, 1024, 256))
    paths = [write(tmp_path, f"{i}.json", serve_result(base, *s, factor=0.8)) for i, s in enumerate(shapes)]
    observations = [o for path in paths for o in read_bench(path, "FP16")]
    profile, _ = calibrate(base, "FP16", observations, "mine.llama-3-8b", "2026-01-01")
    for decode, prefill in (([(64, 1152)], []), ([(64, 1152)], [(1024, 0)])):
        assert predict(profile, "FP16", decode, prefill) == pytest.approx(
            0.8 * predict(base, "FP16", decode, prefill), rel=0.05
        )


def test_a_latency_result_is_one_prefill_and_the_decodes_after_it(base: Profile, tmp_path: Path) -> None:
    result = {"avg_latency": 2.5, "batch_size": 8, "input_len": 100, "output_len": 51}
    (observation,) = read_bench(write(tmp_path, "latency.json", result), "FP16")
    (one, prefill), (fifty, decode) = observation.parts
    assert (one, prefill.prefill_tokens, prefill.chunks) == (1.0, 800, 8)
    assert (fifty, decode.decoding, decode.context_tokens) == (50.0, 8, 8 * 125)
    assert observation.ms == 2500.0


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"avg_latency": 1.0}, "does not say its batch_size, input_len, output_len"),
        ({"mean_tpot_ms": 1.0, "completed": 3}, "without --max-concurrency"),
        ({"something": 1}, "holds neither avg_latency"),
    ],
)
def test_results_that_do_not_say_enough_are_refused(tmp_path: Path, result: dict[str, Any], words: str) -> None:
    with pytest.raises(ProfileError, match=words):
        read_bench(write(tmp_path, "result.json", result), "FP16")


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("throughput: 12")
    with pytest.raises(ProfileError, match="cannot be read as a result file of vllm bench"):
        read_bench(path, "FP16")


def recorded(folder: Path) -> None:
    """Two runs; an iteration of each kind, and one with draft tokens."""
    steps = {"run": ["a", "a", "a", "b"], "step": [0, 1, 2, 0], "dur": [0.01, 0.02, 0.03, 0.04]}
    items = {
        "run": ["a", "a", "a", "a", "b"],
        "step": [0, 1, 1, 2, 0],
        "n_tokens": [5, 1, 3, 3, 7],
        "computed_before": [0, 5, 2, 6, 0],
        "kind": [1, 0, 3, 0, 1],
        "spec": [0, 0, 0, 2, 0],
    }
    pq.write_table(pa.table(steps), folder / "steps.parquet")
    pq.write_table(pa.table(items), folder / "items.parquet")


def test_recorded_iterations_are_read_as_the_cost_model_sees_them(tmp_path: Path) -> None:
    recorded(tmp_path)
    first, mixed = read_iterations(tmp_path, "FP16", run="a")
    assert (first.prefill_tokens, first.prefill_pairs, first.ms) == (5, 15, 10.0)
    assert (mixed.decoding, mixed.context_tokens, mixed.chunks, mixed.prefill_pairs) == (1, 6, 1, 3 * 2 + 6)
    assert len(read_iterations(tmp_path, "FP16")) == 3


def test_an_unknown_run_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"has no steps\.parquet"):
        read_iterations(tmp_path, "FP16")
    recorded(tmp_path)
    with pytest.raises(ProfileError, match="holds no iterations of run 'c'"):
        read_iterations(tmp_path, "FP16", run="c")


def test_too_few_iterations_are_refused(base: Profile, tmp_path: Path) -> None:
    recorded(tmp_path)
    with pytest.raises(ProfileError, match="are too few to fit"):
        fit_iterations(base, "FP16", read_iterations(tmp_path, "FP16", run="b"), "x", "2026-01-01")


def test_a_config_without_sizes_is_refused() -> None:
    with pytest.raises(ProfileError, match="lacks num_hidden_layers"):
        architecture_from_config("x", {key: v for key, v in TINY.items() if key != "num_hidden_layers"})


def test_the_recorded_scheduler_runs_are_explained_exactly(base: Profile) -> None:
    iterations = read_iterations(VIRTUAL, "FP16", run="cap256_heavy")
    tiny = architecture_from_config("tiny", TINY)
    profile = fit_iterations(base, "FP16", iterations, "tiny.virtual", "2026-01-01", tiny)
    error = profile.tiers["FP16"].held_out
    assert error is not None
    assert error.p95_pct < 0.1


EXPERTS = Path(__file__).parents[2] / "recordings" / "h200_experts"


def median_error(profile: Profile, iterations: list[Iteration]) -> float:
    return median(
        abs(ms / i.ms - 1.0) for ms, i in zip(predicted_ms(profile, "FP16", iterations), iterations, strict=True)
    )


@pytest.mark.parametrize("left_out", ["q_burst_1", "q_chat_1", "q_light_1", "q_mixed_1"])
def test_iterations_of_other_runs_make_a_composed_profile_better(left_out: str) -> None:
    composed = load_profile("h200-141gb.qwen3-30b-a3b")
    runs = {run["run"] for run in json.loads((EXPERTS / "runs.json").read_text())}
    others = [i for run in sorted(runs - {left_out}) for i in read_iterations(EXPERTS, "FP16", run)]
    own = read_iterations(EXPERTS, "FP16", left_out)
    fitted = fit_iterations(composed, "FP16", others, "mine.qwen3-30b-a3b", "2026-01-01")
    assert median_error(fitted, own) < 0.03 < median_error(composed, own)


def test_a_recording_without_small_batches_and_prompts_is_accepted() -> None:
    composed = load_profile("h200-141gb.qwen3-30b-a3b")
    recorded = [i for i in read_iterations(EXPERTS, "FP16") if i.prefill_tokens == 0]
    large, small = ([i for i in recorded if (i.decoding >= 32) == is_large] for is_large in (True, False))
    fitted = fit_iterations(composed, "FP16", large, "mine.qwen3-30b-a3b", "2026-01-01")
    assert median_error(fitted, large) < 0.02
    assert median_error(fitted, small) < 1.1 * median_error(composed, small)
    longer, shorter = (predict(fitted, "FP16", [], [(n, 0)]) for n in (4096, 1024))
    assert longer > 2 * shorter > 0
