from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from llmserve_env.errors import ConfigError
from llmserve_env.workloads import WorkloadSpec, parse_workload, sample
from tests.workloads.specs import ADVERSARIAL, BURSTY, CHATS, STATIC, data


@pytest.mark.parametrize("text", [STATIC, BURSTY, ADVERSARIAL, CHATS], ids=["static", "bursty", "adversarial", "chats"])
def test_a_workload_survives_being_written_down(text: str) -> None:
    spec = parse_workload(data(text))
    assert parse_workload(spec.model_dump(mode="json", by_alias=True)) == spec
    assert WorkloadSpec.model_validate_json(spec.model_dump_json(by_alias=True)) == spec


def test_the_example_of_the_documentation_is_valid() -> None:
    from llmserve_env.workloads import spec as module

    example = str(module.__doc__).split("```yaml")[1].split("```")[0]
    assert len(sample(parse_workload(data(example)), 0)) > 1500


def test_a_spec_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        parse_workload(data(STATIC)).classes[0].name = "other"


Change = Callable[[dict[str, Any]], Any]


def source(**fields: Any) -> Change:
    return lambda d: d["sources"][0].update(fields)


def arrivals(**fields: Any) -> Change:
    return source(arrivals=fields)


def kind(**fields: Any) -> Change:
    return lambda d: d["sources"][0]["kinds"][0].update(fields)


def prompts(**fields: Any) -> Change:
    return kind(prompt_tokens=fields)


def outputs(**fields: Any) -> Change:
    return kind(output_tokens=fields)


def accept(**fields: Any) -> Change:
    return kind(acceptance=fields)


def top(**fields: Any) -> Change:
    return lambda d: d.update(fields)


def chats(**fields: Any) -> Change:
    one = {"kind": "constant", "value": 1}
    return source(sessions={"turns": one, "think_s": one, **fields})


ONE_CLASS = {"name": "interactive", "ttft_slo_ms": 500}
TWO = {"kind": "constant", "value": 2}
BURSTS = {"kind": "bursts", "base_rps": 1, "burst_rps": 2, "period_s": 30, "burst_s": 12}
TABLE = {"kind": "quantiles", "levels": [0, 0.5, 1]}

ARRIVALS = "workload.sources[0].arrivals"
PROMPT = "workload.sources[0].kinds[0].prompt_tokens"
OUTPUT = "workload.sources[0].kinds[0].output_tokens"
SESSIONS = "workload.sources[0].sessions"

BAD: list[tuple[str, Change, str, str]] = [
    ("unknown field", top(horizon=3), "workload", "unknown field horizon; allowed: horizon_s, classes, sources"),
    ("no classes", top(classes=[]), "workload.classes", "at least 1 item"),
    ("nine classes", top(classes=[ONE_CLASS] * 9), "workload.classes", "at most 8 items"),
    ("twin classes", top(classes=[ONE_CLASS] * 2), "workload", "'interactive' is repeated"),
    ("no sources", top(sources=[]), "workload.sources", "at least 1 item"),
    ("zero horizon", top(horizon_s=0), "workload.horizon_s", "greater than or equal to 1; got 0"),
    ("horizon in words", top(horizon_s="200"), "workload.horizon_s", "valid integer; got '200'"),
    ("endless table", top(horizon_s=10**8), "workload", "at most 20,000,000"),
    ("zero scale", top(rate_scale=0), "workload.rate_scale", "greater than 0; got 0"),
    (
        "SLO of zero",
        top(classes=[{**ONE_CLASS, "ttft_slo_ms": 0}]),
        "workload.classes[0].ttft_slo_ms",
        "greater than 0",
    ),
    ("SLO forgotten", top(classes=[{"name": "interactive"}]), "workload.classes[0].ttft_slo_ms", "Field required"),
    ("patience", top(classes=[{**ONE_CLASS, "patience_s": -1}]), "workload.classes[0].patience_s", "greater than 0"),
    ("nameless class", top(classes=[{**ONE_CLASS, "name": ""}]), "workload.classes[0].name", "at least 1 character"),
    ("unknown process", arrivals(kind="hawkes"), ARRIVALS, "'poisson'"),
    ("no process", arrivals(rate_rps=3), ARRIVALS, "'kind'"),
    ("negative rate", arrivals(kind="poisson", rate_rps=-1), ARRIVALS + ".rate_rps", "got -1"),
    ("rate not a number", arrivals(kind="poisson", rate_rps=float("nan")), ARRIVALS + ".rate_rps", "finite"),
    ("rate true", arrivals(kind="poisson", rate_rps=True), ARRIVALS + ".rate_rps", "valid number"),
    ("rate misspelt", arrivals(kind="poisson", rate=3), ARRIVALS, "allowed: kind, rate_rps"),
    ("no variation", arrivals(kind="gamma", rate_rps=3, cv=0), ARRIVALS + ".cv", "greater than 0"),
    ("overlapping bursts", arrivals(**BURSTS, jitter_s=10), ARRIVALS, "jitter_s must be at most 9"),
    ("burst too long", arrivals(**{**BURSTS, "burst_s": 31}), ARRIVALS, "could overlap"),
    ("burst in warm-up", arrivals(**BURSTS, jitter_s=5, first_s=12), ARRIVALS, "warm-up quiet"),
    (
        "short series",
        arrivals(kind="rate_series", step_s=10, rates_rps=[1, 2]),
        "workload",
        "sources[0].arrivals.rates_rps covers 20 s of a horizon of 200 s",
    ),
    (
        "shape of exponential",
        arrivals(kind="on_off", on_rps=1, on_s=1, off_s=1, on_cv=2),
        ARRIVALS,
        "use dwell: lognormal",
    ),
    ("no kinds", source(kinds=[]), "workload.sources[0].kinds", "at least 1 item"),
    ("shares", kind(share=0.9), "workload.sources[0]", "shares of kinds must sum to 1; got 0.9"),
    (
        "no such class",
        kind(**{"class": "gold"}),
        "workload",
        "sources[0].kinds[0].class 'gold' is not a class; allowed: interactive",
    ),
    ("low above high", prompts(kind="uniform", low=9, high=3), PROMPT, "low must be at most high"),
    ("empty prompt", prompts(kind="uniform", low=0, high=3), PROMPT + ".low", "equal to 1; got 0"),
    ("half a token", prompts(kind="constant", value=1.5), PROMPT + ".value", "valid integer"),
    ("flat law", outputs(kind="lognormal", mu=1, sigma=0, low=1, high=2), OUTPUT + ".sigma", "greater than 0"),
    (
        "impossible bounds",
        outputs(kind="lognormal", mu=1, sigma=0.1, low=1000, high=2000, bounds="resample"),
        OUTPUT,
        "almost none",
    ),
    (
        "odd bounds",
        outputs(kind="lognormal", mu=1, sigma=1, low=1, high=9, bounds="cut"),
        OUTPUT + ".bounds",
        "'clamp' or 'resample'",
    ),
    ("levels", outputs(**{**TABLE, "levels": [0.1, 1]}, values=[1, 2]), OUTPUT, "from 0 to 1"),
    ("levels repeat", outputs(**{**TABLE, "levels": [0, 0, 1]}, values=[1, 2, 3]), OUTPUT, "strictly increase"),
    ("values fall", outputs(**TABLE, values=[5, 4, 9]), OUTPUT, "must not decrease"),
    ("values missing", outputs(**TABLE, values=[5, 9]), OUTPUT, "one value per level"),
    ("conditional prompt", prompts(kind="conditional", bands=[{"tokens": TWO}]), PROMPT, "expected tags"),
    (
        "open band",
        outputs(kind="conditional", bands=[{"tokens": TWO}, {"tokens": TWO}]),
        OUTPUT,
        "every band except the last",
    ),
    (
        "bands fall",
        outputs(
            kind="conditional",
            bands=[{"prompt_up_to": 9, "tokens": TWO}, {"prompt_up_to": 9, "tokens": TWO}, {"tokens": TWO}],
        ),
        OUTPUT,
        "increase from band to band",
    ),
    ("no room for output", top(max_total_tokens=128), "workload", "sources[0].kinds[0].prompt_tokens reaches 128"),
    (
        "acceptance above one",
        accept(base=1.2),
        "workload.sources[0].kinds[0].acceptance.base",
        "less than or equal to 1",
    ),
    ("acceptance by drift", accept(base=0.95, drift_amplitude=0.1), "workload", "acceptance reaches 0.85 to 1.05"),
    ("acceptance by prompt", accept(base=0.1, per_prompt_doubling=0.2), "workload", "for prompts of 64 tokens"),
    ("too many turns", chats(turns={"kind": "uniform", "low": 1, "high": 300}), SESSIONS, "at most 256; got up to 300"),
    (
        "negative thinking",
        chats(think_s={"kind": "constant", "value": -1}),
        "workload.sources[0].sessions.think_s.value",
        "equal to 0",
    ),
    ("long prefix", chats(prefix_tokens=16_300), "workload", "reaches 16428 with the shared prefix"),
]


@pytest.mark.parametrize(("change", "path", "rule"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_bad_workload_is_refused_by_field_and_rule(change: Change, path: str, rule: str) -> None:
    description = data(STATIC)
    change(description)
    with pytest.raises(ConfigError) as caught:
        parse_workload(description)
    findings = str(caught.value).splitlines()
    assert any(finding.startswith(f"{path}: ") and rule in finding for finding in findings), findings


def test_every_finding_is_reported_at_once() -> None:
    description = data(STATIC)
    description["horizon_s"] = -1
    description["sources"][0]["arrivals"]["rate_rps"] = "fast"
    with pytest.raises(ConfigError) as caught:
        parse_workload(description, where="my.yaml: workload")
    assert [line.split(": ")[1] for line in str(caught.value).splitlines()] == [
        "workload.horizon_s",
        "workload.sources[0].arrivals.rate_rps",
    ]


def test_a_list_is_no_workload() -> None:
    with pytest.raises(ConfigError, match="workload: "):
        parse_workload([])  # type: ignore[arg-type]
