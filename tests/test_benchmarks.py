"""How the benchmarks summarise measurements; the measurements are run by hand on a quiet machine."""

from __future__ import annotations

from typing import Any

from benchmarks import live_server, profile_errors, server

PHASE = {"rate_rps": 5.0, "requests": 100}
ERRORS = {"throughput_tps": 0.05, "ttft_ms": -0.25, "e2e_ms": 0.1, "itl_ms": 0.5}
COMPARED = {
    "mean_errors": {"profile": {"5.0": ERRORS}, "run": {"5.0": {**ERRORS, "ttft_ms": 0.1}}},
    "runs": [
        {"is_refitted": is_refitted, "seed": seed, "pace": 1.0 + seed / 100, "load_average": 1.5, "phases": [PHASE]}
        for seed in (2, 3)
        for is_refitted in (False, True)
    ],
}


def test_a_live_comparison_counts_every_request_once_and_names_the_bar_it_misses() -> None:
    content = live_server.summary(COMPARED, started_in_s=24.6)
    assert (content["requests"], content["seeds"], content["pace"]) == (200, [2, 3], [1.02, 1.03])
    assert live_server.missed(content) == ["costs fitted to the calibration before it, 5 rps: mean TTFT -25.0%"]
    assert live_server.worst(content["errors"]["profile"], "ttft_ms") == 0.25
    assert "| the compared run | 5 | +5.0% | +10.0% | +10.0% |" in live_server.as_table(content)


def test_the_live_comparison_that_is_shown_keeps_its_bars() -> None:
    assert live_server.missed(live_server.found()) == []


def measured(ratio: float, errors: int = 0, seconds: float = 0.3) -> dict[str, Any]:
    row = {
        **{name: 1.0 for name in ("p50_ms", "p99_ms", "cpu_us_per_step")},
        **{"steps_per_s": 5000, "echo_steps_per_s": 6000, "ratio": ratio, "errors": errors, "echo_errors": 0},
    }
    by_name = {"http": row, "websocket": row}
    tasks = ("bursty_workload", "adversarial_multitenant")
    return {
        "load": dict.fromkeys(tasks, by_name),
        "episode_s": dict.fromkeys(tasks, dict.fromkeys(by_name, seconds)),
        "sessions": 64,
        "seconds": 60.0,
    }


def test_the_server_is_held_to_its_bars() -> None:
    assert server.missed(measured(0.7)) == []
    assert server.missed(measured(0.69)) == [
        "bursty_workload over http: ratio 0.69 < 0.7",
        "bursty_workload over websocket: ratio 0.69 < 0.7",
    ]
    assert len(server.missed(measured(0.7, errors=1))) == 4
    assert len(server.missed(measured(0.7, seconds=1.9))) == 2
    assert "64 sessions, 60 s per row and server, 4 errors." in server.as_table(measured(0.7, errors=1))


def test_every_tier_is_held_to_points_that_its_fit_has_not_seen() -> None:
    shown = profile_errors.held_out().splitlines()
    assert [line.split(" | ")[1] for line in shown[2:5]] == ["FP16", "INT8", "INT4"]
