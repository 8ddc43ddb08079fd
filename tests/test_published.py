"""The comparison with published servers, on a few public rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import published
from benchmarks.closed_loop import Load, Server, closed_loop
from benchmarks.fitted_profiles import compare
from benchmarks.published_cases import read_cases
from benchmarks.published_host import PublishedHost
from llmserve_env.engine.costs import NO_HOST, HostCosts
from llmserve_env.profiles import predict
from llmserve_env.profiles.store import load_profile

COLUMNS = (
    "backend_version,model_path,system,isl,osl,gemm_quant_mode,moe_quant_mode,batch_size,tp_size,pp_size,"
    "attention_dp_size,moe_tp_size,moe_ep_size,ttft_ms,tpot_ms,concurrency,peer_ttft_ms,peer_tpot_ms,suspect"
)
# From aiconfigurator's silicon_sample.csv (Apache-2.0): Llama-3.1-70B FP8, H100, tensor parallelism 4 and 8.
ROWS = [
    ",meta-llama/Llama-3.1-70B,h100_sxm,1024,1024,fp8,fp8,,4,1,1,4,1,80.5,11.78,4,173.1,11.33,0",
    ",meta-llama/Llama-3.1-70B,h100_sxm,1024,1024,fp8,fp8,,4,1,1,4,1,256.4,19.51,64,246.6,19.34,0",
    ",meta-llama/Llama-3.1-70B,h100_sxm,1024,1024,fp8,fp8,,8,1,1,8,1,76.0,9.2,8,,,0",
    ",meta-llama/Llama-9,h100_sxm,1024,1024,fp8,fp8,,8,1,1,8,1,76.0,9.2,8,,,0",
    ",meta-llama/Llama-3.1-70B,h100_sxm,1024,1024,fp8,fp8,,8,1,1,8,1,1.0,1.0,8,,,1",
]


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    path = tmp_path / "cases.csv"
    path.write_text("\n".join([COLUMNS, *ROWS]) + "\n")
    return path


def test_rows_that_cannot_be_expressed_say_why_and_suspect_ones_are_left_out(cases: Path) -> None:
    found, refused = read_cases(cases)
    assert len(found) == 3
    assert len(refused) == 1
    assert "model 'meta-llama/Llama-9' is not known" in refused[0]


def test_the_report_counts_rows_and_sets_the_peer_beside_it(
    cases: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["published", "--cases", str(cases), "--json"])
    published.main()
    report = json.loads(capsys.readouterr().out)
    assert (report["rows"], report["expressible"]) == (4, 3)
    assert report["groups"][0]["rows"] == 3
    assert set(report["groups"][0]) >= {"model", "system", "precision", "rows", "tpot", "ttft"}
    assert report["overall"]["tpot"]["median"] < 0.2
    assert report["peer"]["tpot"]["median"] < 0.1


FP8 = 3
PROFILE = load_profile("h100-80gb.llama-3.1-70b.kv-fp8.tp4")


def server(host: HostCosts = NO_HOST, kv_tokens: int = 1_000_000) -> Server:
    return Server(PROFILE.costs().serving(FP8), host, is_async=False, token_budget=8192, kv_tokens=kv_tokens)


def test_more_requests_in_flight_wait_longer_and_a_host_adds_its_time() -> None:
    few, many = (closed_loop(server(), Load(512, 64, n, shortest=0.8)) for n in (2, 32))
    assert few.tpot_ms < many.tpot_ms
    assert few.ttft_ms < many.ttft_ms
    load = Load(512, 64, 2, shortest=0.8)
    host = PublishedHost(iteration_ms=1.0, front_end_ms=10.0, per_prompt_token_ms=0.01).costs(PROFILE.model, load)
    slower = closed_loop(server(host), load)
    assert slower.tpot_ms > few.tpot_ms + 0.9
    assert slower.ttft_ms > few.ttft_ms + 10.0


def test_one_client_waits_for_its_own_prompt_alone() -> None:
    """Weights are loaded before the first request: nothing but its prefill is in the way of a first token."""
    prefill_ms = predict(PROFILE, "FP8", [], [(1024, 0)])
    assert closed_loop(server(), Load(1024, 32, 1)).ttft_ms == pytest.approx(prefill_ms, rel=0.01)


def test_requests_of_equal_length_run_in_step_and_wait_for_each_other() -> None:
    equal, spread = (closed_loop(server(), Load(1024, 128, 8, shortest)) for shortest in (1.0, 0.8))
    assert equal.ttft_ms > 1.5 * spread.ttft_ms


def test_a_pool_too_small_for_all_clients_makes_them_wait() -> None:
    load = Load(1024, 256, 16, shortest=0.8)
    free, tight = (closed_loop(server(kv_tokens=tokens), load) for tokens in (1_000_000, 8_000))
    assert tight.ttft_ms > 3 * free.ttft_ms


def test_who_measured_a_row_decides_its_lengths_and_its_token_budget(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    nvidia = "0.12.0,Qwen/Qwen3-32B,h100_sxm,1024,1024,bfloat16,,,4,1,1,1,1,129.8,10.6,8,,,0"
    path.write_text("\n".join([COLUMNS, ROWS[0], nvidia]) + "\n")
    inferencex, own = read_cases(path)[0]
    assert (inferencex.load.shortest, inferencex.token_budget, inferencex.is_async) == (0.8, 8192, True)
    assert (own.load.shortest, own.token_budget, own.is_async) == (1.0, 8 + 1024 + 1500, False)


def test_results_of_ones_own_server_improve_the_composed_profile(tmp_path: Path) -> None:
    # The same source: Llama-3.1-70B FP8 on eight H100, by output length and requests in flight.
    published = {
        1024: {4: 9.114, 8: 9.356, 16: 11.392, 32: 12.637, 64: 15.455},
        8192: {4: 9.195, 8: 9.815, 16: 11.584, 32: 12.865, 64: 16.489},
    }
    rows = [
        f",meta-llama/Llama-3.1-70B,h100_sxm,1024,{output},fp8,fp8,,8,1,1,8,1,100.0,{tpot_ms},{n},,,0"
        for output, found in published.items()
        for n, tpot_ms in found.items()
    ]
    path = tmp_path / "cases.csv"
    path.write_text("\n".join([COLUMNS, *rows]) + "\n")
    composed, fitted = np.median(compare(read_cases(path)[0], PublishedHost()), axis=0)
    assert fitted < 0.05 < composed
