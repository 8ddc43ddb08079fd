"""Tasks drawn at random, for training that should carry over: the same task perturbed or varied, or everything anew.

Loads are drawn as shares of what the fleet can serve at FP16, by a rough estimate from the costs of two iterations, so
that few drawn tasks are idle or hopeless. Drawn tasks have no file and cannot be graded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from llmserve_env.engine.costs import GpuCosts
from llmserve_env.profiles.memory import UTILISATION
from llmserve_env.profiles.prediction import predict_ps
from llmserve_env.profiles.store import load_profile
from llmserve_env.tasks.task import Task, parse_task
from llmserve_env.tasks.variants import with_changes
from llmserve_env.units import PS_PER_S, bytes_to_gb
from llmserve_env.workloads.arrivals import WARMUP_S

PROFILES = ("a100-40gb.llama-3-8b", "a100-80gb.llama-3-8b", "h100-80gb.llama-3-8b", "h200-141gb.llama-3-8b")
DRAWN_TIERS = ("FP16", "INT8", "INT4")
"""Tiers of drawn fleets, so that all of them have the same actions."""
LEAST_MEMORY_GB = 24.0
"""Room for the weights at FP16, a draft model and a small KV pool."""
RESERVE_TOKENS = 4096
"""Tokens whose activations are set aside."""
BATCH = 64
"""Requests of the decode iteration by which capacity is estimated."""
USUAL_TOKENS = (512.0, 150.0)
"""Prompt and output by which two GPUs are compared."""
Rng = np.random.Generator


def perturbed(task: Task, rng: Rng) -> Task:
    """The same task with somewhat other traffic and another CPU beside the GPU, as a live engine may turn out."""
    workload = task.workload.model_dump(by_alias=True)
    sources = [{**source, "arrivals": _perturbed_arrivals(source["arrivals"], rng)} for source in workload["sources"]]
    return with_changes(
        task,
        workload={"sources": sources, "rate_scale": task.workload.rate_scale * log_uniform(rng, 0.85, 1.15)},
        deployment={"host_time_scale": task.deployment.host_time_scale * log_uniform(rng, 0.7, 1.4)},
    )


def _perturbed_arrivals(arrivals: dict[str, Any], rng: Rng) -> dict[str, Any]:
    """Rates and times of one source, each stretched by a different factor."""
    rates, times = log_uniform(rng, 0.85, 1.2), log_uniform(rng, 0.8, 1.25)
    stretched = {
        name: value * (rates if name.endswith("_rps") else times)
        for name, value in arrivals.items()
        if name.endswith(("_rps", "_s")) and isinstance(value, float | int)
    }
    if "first_s" in stretched:
        # A recurring event leaves the start of an episode quiet.
        stretched["first_s"] = max(stretched["first_s"], WARMUP_S + stretched["jitter_s"])
    return {**arrivals, **stretched}


def varied(task: Task, rng: Rng) -> Task:
    """The same task with another load, fleet, GPU, SLOs, and prices of cost, memory and precision."""
    profile = str(rng.choice([task.deployment.profile, *PROFILES]))
    replicas = max(round(task.deployment.replicas * rng.choice([0.5, 1.0, 1.0, 2.0])), 1)
    here, there = (load_profile(name).costs() for name in (task.deployment.profile, profile))
    faster = capacity_rps(there, *USUAL_TOKENS) / capacity_rps(here, *USUAL_TOKENS)
    rate = faster * replicas / task.deployment.replicas * log_uniform(rng, 0.7, 1.3)
    promised = log_uniform(rng, 0.5, 2.0)
    workload = task.workload.model_dump(by_alias=True)
    classes = [{**service, **_scaled(service, promised)} for service in workload["classes"]]
    weights = task.reward.weights.model_dump()
    weights |= {name: weights[name] * log_uniform(rng, 0.6, 1.6) for name in ("cost", "memory")}
    worth = rng.uniform(0.55, 0.95)
    deployment: dict[str, Any] = {"profile": profile, "replicas": replicas, "tiers": DRAWN_TIERS}
    if profile != task.deployment.profile:
        deployment["memory_limit_gb"] = round(
            log_uniform(rng, min(LEAST_MEMORY_GB, _most_gb(profile)), _most_gb(profile)), 1
        )
    return with_changes(
        task,
        workload={"classes": classes, "rate_scale": task.workload.rate_scale * rate},
        deployment=deployment,
        reward={"weights": weights, "quality": dict.fromkeys(task.workload.class_names, (1.0, worth, 0.7 * worth))},
    )


def _scaled(service: dict[str, Any], factor: float) -> dict[str, Any]:
    return {
        name: None if service[name] is None else float(service[name]) * factor for name in ("ttft_slo_ms", "patience_s")
    }


def drawn(rng: Rng, window_s: float | None = None) -> Task:
    """A new task: one to three classes and sources, any kind of arrivals, and a fleet to match."""
    names = ("interactive", "standard", "batch")[: rng.integers(1, 4)]
    profile, replicas = str(rng.choice(PROFILES)), int(rng.choice([1, 2, 2, 3, 4, 8]))
    prefill_replicas = int(rng.integers(0, 2)) * max(replicas // 4, 1)
    window = float(rng.choice([1.0, 2.0, 5.0, 5.0])) if window_s is None else window_s
    horizon_s = round(200 * window)
    costs, load = load_profile(profile).costs(), rng.uniform(0.5, 1.0)
    shares = rng.dirichlet(np.full(rng.integers(1, 4), 2.0))
    sources = [_source(rng, i, costs, load * share * replicas, window, names) for i, share in enumerate(shares)]
    weights, worth = rng.dirichlet(np.full(len(names), 3.0)) * len(names), rng.uniform(0.55, 0.95)
    active = ["batch_cap", "kv_budget_fraction", "speculation_depth", "quantization_tier", "priority_routing"]
    data = {
        "id": "drawn",
        "name": "Drawn at random",
        "window_s": window,
        "workload": {"horizon_s": horizon_s, "classes": _classes(rng, names), "sources": sources},
        "deployment": {
            "profile": profile,
            "tiers": DRAWN_TIERS,
            "replicas": replicas,
            "prefill_replicas": prefill_replicas,
            "memory_limit_gb": _memory_limit_gb(rng, profile, sources, replicas),
            "long_prefill_threshold": int(rng.choice([0, 512, 1024])),
            "waiting_room": [64] * len(names),
        },
        "knobs": {
            "active": [*active, "prefill_decode_split"] if prefill_replicas else active,
            "dwell_steps": {"quantization_tier": int(rng.choice([1, 5]))},
        },
        "reward": {
            "weights": {
                "throughput": 0.4,
                "latency": 0.25,
                "violations": rng.uniform(0.2, 0.4),
                "cost": rng.uniform(0.08, 0.2),
                "memory": rng.uniform(0.08, 0.28),
            },
            "itl_comfort_ms": rng.uniform(5.0, 12.0),
            "itl_limit_ms": rng.uniform(25.0, 60.0),
            "busy_share": 0.2,
            "class_weights": dict(zip(names, weights.tolist(), strict=True)),
            "quality": dict.fromkeys(names, (1.0, worth, 0.7 * worth)),
        },
    }
    return parse_task(data, "drawn")


def _classes(rng: Rng, names: tuple[str, ...]) -> list[dict[str, Any]]:
    slos_ms = np.sort([log_uniform(rng, 200.0, 5000.0) for _ in names]).tolist()
    return [
        {"name": name, "ttft_slo_ms": slo_ms, "patience_s": slo_ms / 1000.0 * rng.uniform(1.0, 3.0)}
        for name, slo_ms in zip(names, slos_ms, strict=True)
    ]


def _source(
    rng: Rng, index: int, costs: GpuCosts, gpus: float, window_s: float, names: tuple[str, ...]
) -> dict[str, Any]:
    """A tenant that keeps this many GPUs busy on average."""
    prompt, output = log_uniform(rng, 64.0, 8000.0), log_uniform(rng, 20.0, 400.0)
    rate_rps = gpus * capacity_rps(costs, prompt, output)
    middle = rng.uniform(0.45, 0.75)
    return {
        "tenant": f"tenant_{index}",
        "arrivals": _arrivals(rng, rate_rps, window_s),
        "kinds": [
            {
                "share": 1.0,
                "class": str(rng.choice(names)),
                "prompt_tokens": _lengths(rng, prompt, 16, 12_000),
                "output_tokens": _lengths(rng, output, 2, 2048),
                "acceptance": {"base": middle, "drift_amplitude": 0.25, "drift_period_s": 60.0 * window_s},
            }
        ],
    }


def _lengths(rng: Rng, mean: float, low: int, high: int) -> dict[str, Any]:
    sigma = rng.uniform(0.3, 1.2)
    return {"kind": "lognormal", "mu": float(np.log(mean) - sigma**2 / 2.0), "sigma": sigma, "low": low, "high": high}


def _arrivals(rng: Rng, rate_rps: float, window_s: float) -> dict[str, Any]:
    """Arrivals of this mean rate; times scale with the window, because control is per window."""
    kind, factor = str(rng.choice(["poisson", "gamma", "bursts", "spikes", "on_off"])), rng.uniform(2.0, 6.0)
    period_s, share = window_s * rng.uniform(20.0, 80.0), rng.uniform(0.15, 0.4)
    match kind:
        case "poisson":
            return {"kind": kind, "rate_rps": rate_rps}
        case "gamma":
            return {"kind": kind, "rate_rps": rate_rps, "cv": rng.uniform(0.8, 5.0)}
        case "on_off":
            return {
                "kind": kind,
                "on_rps": rate_rps / share,
                "on_s": share * period_s,
                "off_s": (1.0 - share) * period_s,
            }
    base = rate_rps / (1.0 + share * (factor - 1.0))
    timing = {"jitter_s": 0.1 * period_s, "first_s": max(0.5 * period_s, 10.0 + 0.1 * period_s)}
    often_s, lasts_s = ("period_s", "burst_s") if kind == "bursts" else ("every_s", "spike_s")
    higher = {"burst_rps": base * factor} if kind == "bursts" else {"factor": factor}
    return {"kind": kind, "base_rps": base, **higher, often_s: period_s, lasts_s: share * period_s, **timing}


def capacity_rps(costs: GpuCosts, prompt_tokens: float, output_tokens: float) -> float:
    """Requests per second that one GPU can serve at FP16, roughly: prefill, and a share of full decode batches."""
    prefill_ps = predict_ps(costs, "FP16", prefill=[(round(prompt_tokens), 0)])
    context = round(prompt_tokens + output_tokens / 2.0)
    decode_ps = predict_ps(costs, "FP16", decode=[(BATCH, context)])
    return PS_PER_S / (prefill_ps + output_tokens * decode_ps / BATCH)


def log_uniform(rng: Rng, low: float, high: float) -> float:
    """A number whose logarithm is spread evenly."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _memory_limit_gb(rng: Rng, profile: str, sources: list[dict[str, Any]], replicas: int) -> float:
    """Room for the weights and a KV pool of which the mean load needs a drawn share, within what the card has."""
    costs, pool_share = load_profile(profile).costs(), rng.uniform(0.1, 0.7)
    kv_bytes = sum(_kv_tokens(costs, source) for source in sources) * costs.kv_bytes_per_token / replicas
    reserve = costs.tiers[0].weight_bytes + costs.draft_bytes + RESERVE_TOKENS * costs.activation_bytes_per_token
    wanted_gb = bytes_to_gb(round(reserve + kv_bytes / pool_share))
    return round(min(max(wanted_gb, min(LEAST_MEMORY_GB, _most_gb(profile))), _most_gb(profile)), 1)


def _kv_tokens(costs: GpuCosts, source: dict[str, Any]) -> float:
    """Tokens that the requests of a source hold at its mean rate: arrivals, times their stay, times their length."""
    kind = source["kinds"][0]
    prompt, output = (_mean_tokens(kind[name]) for name in ("prompt_tokens", "output_tokens"))
    decode_s = predict_ps(costs, "FP16", decode=[(BATCH, round(prompt + output / 2.0))]) / PS_PER_S
    return _mean_rps(source["arrivals"]) * output * decode_s * (prompt + output / 2.0)


def _mean_tokens(lengths: dict[str, Any]) -> float:
    return float(np.exp(lengths["mu"] + lengths["sigma"] ** 2 / 2.0))


def _mean_rps(arrivals: dict[str, Any]) -> float:
    """The mean rate that `_arrivals` was given."""
    match arrivals["kind"]:
        case "on_off":
            return float(arrivals["on_rps"] * arrivals["on_s"] / (arrivals["on_s"] + arrivals["off_s"]))
        case "bursts":
            share = arrivals["burst_s"] / arrivals["period_s"]
            return float(arrivals["base_rps"] * (1.0 - share) + arrivals["burst_rps"] * share)
        case "spikes":
            share = arrivals["spike_s"] / arrivals["every_s"]
            return float(arrivals["base_rps"] * (1.0 + share * (arrivals["factor"] - 1.0)))
    return float(arrivals["rate_rps"])


def _most_gb(profile: str) -> float:
    """Memory that vLLM takes of the card, in GB."""
    return UTILISATION * bytes_to_gb(load_profile(profile).gpu.memory_bytes)
