"""How the benchmarks summarise measurements; the measurements are run by hand on a quiet machine."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Any

from benchmarks import chaos, chaos_connections, crowd, live_server, profile_errors, server, soak

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


def test_a_crowd_is_held_to_its_bars() -> None:
    def found(ratio: float, resident_mb: int) -> dict[str, Any]:
        row = {"steps_per_s": {"50": 1000, "500": 700}, "ratio": ratio, "errors": 0}
        sockets = {"open": 1000, "before_mb": 400, "resident_mb": resident_mb, "errors": 0}
        size = {"live_mb": 2.0, "packed_mb": 0.1, "unpack_ms": 1.0}
        return {"stepping": {"bursty_workload": row}, "websockets": sockets, "sizes": {"bursty_workload": size}}

    assert crowd.missed(found(0.6, 1_999)) == []
    assert crowd.missed(found(0.59, 2_000)) == [
        "bursty_workload: 500 sessions step at 0.59 of the rate of 50",
        "2000 MB with 1000 WebSockets",
    ]
    shown = crowd.as_text(found(0.6, 1_999))
    assert "| `bursty_workload` | 1,000 | 700 | 0.60 |" in shown
    assert "| `bursty_workload` | 2.00 | 0.10 | 1.0 |" in shown


def day(last_quarter_mb: float) -> dict[str, Any]:
    samples = [
        {"hour": float(hour), "resident_mb": 500.0, "descriptors": 30.0, "threads": 20.0, "disk_mb": 5.0}
        for hour in range(24)
    ]
    samples[23]["resident_mb"] = last_quarter_mb
    return {"hours": 24.0, "done": {"HTTP sessions": 7}, "steps": 9, "quarters": soak.quarters(samples, 24.0)}


def test_what_grows_over_a_day_is_named() -> None:
    assert soak.missed(day(525.0)) == []
    assert soak.missed(day(526.0)) == ["resident_mb grew from 500 to 526, by more than 25"]
    assert soak.missed(day(700.0))[1] == "resident_mb 700 of 700"
    assert "| memory, MB | 500 | 500 | 500 | 525 | 25 |" in soak.as_text(day(525.0))


def test_a_run_of_chaos_names_what_was_lost() -> None:
    quiet: dict[str, Any] = {
        **dict.fromkeys(("lost_or_different", "honest_refused", "unhealthy", "tried"), ()),
        **dict.fromkeys(("answers_500", "unexpected_errors"), 0),
        **dict.fromkeys(("health_max_ms", "step_p99_ms", "resident_mb", "disk_mb"), 1.0),
    }
    assert chaos.missed(quiet) == []
    assert chaos.missed({**quiet, "unexpected_errors": 1, "disk_mb": 50.0}) == [
        "1 unexpected errors in the server's own count",
        "50.0 MB on disk of 50",
    ]


def _refuse_handshakes(listening: socket.socket) -> None:
    """Hang up on the first client, tell the second that it may not, and answer the others until they leave."""
    answers = [b"", b"HTTP/1.1 503 Service Unavailable\r\n\r\n"]
    held = []
    with suppress(OSError):
        while True:
            one, _ = listening.accept()
            one.recv(4096)
            if answers:
                one.sendall(answers.pop(0))
                one.close()
            else:
                one.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
                held.append(one)
    for one in held:
        one.close()


def test_a_refused_handshake_is_counted_and_the_flood_goes_on() -> None:
    turns = iter(range(20))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=_refuse_handshakes, args=(listening,))
        server.start()
        tally = chaos_connections.floods(listening.getsockname()[1], lambda: next(turns, None) is not None)
        listening.shutdown(socket.SHUT_RDWR)
        server.join()
    assert (tally["refused"], "cut off" in tally) == (2, False)
    assert tally["messages"] > 0
