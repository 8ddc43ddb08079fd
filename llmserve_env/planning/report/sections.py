"""The sections of the report about the answer: fleets, promises, sensitivity and flags."""

from __future__ import annotations

from html import escape

from llmserve_env.evaluation.markup import bullets, grid, html_table, inline, paragraph, picture, section
from llmserve_env.planning.answer.answer import Followed, Option
from llmserve_env.planning.answer.text import knobs_text, no_fleet_text
from llmserve_env.planning.capacity.checking import MATTERS
from llmserve_env.planning.report.charts import (
    draw_capacity,
    draw_effects,
    draw_load_cost,
    draw_prices,
    draw_scenarios,
    svg_uri,
)
from llmserve_env.planning.report.flags import docker_command, kubernetes_manifest, serve_command, serving
from llmserve_env.planning.report.gather import ReportData
from llmserve_env.request_outcomes import PERCENTILES
from llmserve_env.version import ENVIRONMENT_VERSION, PACKAGE_VERSION

LATENCY_NAMES = (("ttft", "TTFT", 0), ("tpot", "TPOT", 1), ("e2e", "E2E", 0))


def capacity_section(data: ReportData) -> str:
    """How many GPUs, at what price."""
    answer = data.answer
    title = "Capacity and cost at the SLO"
    if not answer.options:
        return section("capacity", title, paragraph(f"No fleet is recommended: {no_fleet_text(answer)}.", "warning"))
    best = answer.recommended
    everywhere = "" if all(one.is_monotone for one in answer.options) else ", and every size where more GPUs did worse"
    chosen = None
    if best is not None:
        chosen = [(one.profile, one.tier) for one in answer.options].index((best.profile, best.tier))
    pictures = [picture(svg_uri(draw_capacity(data)), "Promise over fleet size", "Every fleet that was simulated.")]
    if any(option.best for option in answer.options):
        pictures.append(picture(svg_uri(draw_prices(data)), "Price", "The smallest fleet of each GPU and precision."))
    return section(
        "capacity",
        title,
        paragraph(
            "The smallest fleet that keeps every promise, per GPU and precision, each with the best of "
            "several batch caps, drafts and orders of service, and with all the memory of its GPUs."
        ),
        html_table(
            ["GPU", "tier", "GPUs", "USD/h", "worst promise in the search", "configuration"],
            [_option_row(option) for option in answer.options],
            text_columns=2,
            chosen=chosen,
        ),
        grid(*pictures),
        bullets([f"Price: {text}." for text in answer.prices]),
        paragraph(
            f"A fleet is accepted if every promise is kept with {answer.protocol['confidence']:.0%} confidence on "
            f"seeds {answer.search_seeds}. Sizes are found by bisection; the neighbours of each answer are simulated "
            f"too{everywhere}.",
            "note",
        ),
    )


def _option_row(option: Option) -> list[str]:
    gpu, best = option.profile.split("/")[-1].split(".")[0], option.best
    if best is None:
        last = option.points[-1]
        return [gpu, option.tier_name, f"more than {last.replicas}", "–", last.worst.value_text, "–"]
    return [
        gpu,
        option.tier_name,
        str(best.replicas),
        f"{best.usd_per_hour:.2f}",
        best.worst.value_text,
        knobs_text(best.knobs),
    ]


def promise_section(data: ReportData) -> str:
    """The recommendation on fresh traffic, beside the task's own fleet and the defaults."""
    answer = data.answer
    fleets = [
        *([("recommended", answer.recommended)] if answer.recommended else []),
        ("own fleet, best configuration", answer.own),
        ("own fleet, default knobs", answer.default_knobs),
        ("own fleet, vLLM's defaults", answer.vllm_defaults),
    ]
    return section(
        "promises",
        "The promises on fresh traffic",
        paragraph(
            f"Each fleet on seeds {answer.fresh_seeds}, which no search has seen. Bounds in brackets hold with "
            f"{answer.protocol['confidence']:.0%} confidence each."
        ),
        html_table(
            ["fleet", "GPUs", "USD/h", *(promise.text for promise in answer.own.promises), "lost"],
            [_promise_row(name, found) for name, found in fleets],
            chosen=0 if answer.recommended else None,
        ),
        html_table(
            ["fleet", *(f"{name} p{p}" for _, name, _ in LATENCY_NAMES for p in PERCENTILES)],
            [[name, *_latency_cells(found)] for name, found in fleets],
            chosen=0 if answer.recommended else None,
        ),
        paragraph(
            "Percentiles are of all requests; E2E is from arrival to last token. `lost` in place of a latency means "
            "that the request of that rank was never answered; a lost request has no TPOT.",
            "note",
        ),
        _effects(data),
    )


def _effects(data: ReportData) -> str:
    """Which knobs matter; nothing where none does."""
    if all(effect.span < MATTERS for effect in data.check.effects):
        return ""
    return grid(
        picture(
            svg_uri(draw_effects(data)),
            "Which knobs matter on the task's own fleet",
            "Each knob between its best and worst value, the others at the best configuration.",
        )
    )


def _promise_row(name: str, found: Followed) -> list[str]:
    marks = [f"{promise.value_text}{'' if promise.is_kept else ' ✗'}" for promise in found.promises]
    fleet = f"{found.replicas} × {found.gpu} {found.tier_name}"
    return [name, fleet, f"{found.usd_per_hour:.2f}", *marks, f"{found.lost_share:.1%}"]


def _latency_cells(found: Followed) -> list[str]:
    cells = []
    for key, _, digits in LATENCY_NAMES:
        for percent in PERCENTILES:
            value = found.requests[f"{key}_p{percent}_ms"]
            cells.append("lost" if value is None else f"{value:,.{digits}f} ms")
    return cells


def sensitivity_section(data: ReportData) -> str:
    """How much change the recommended fleet withstands."""
    found = data.sensitivity
    whose = "recommended fleet" if data.is_recommended else "task's own fleet"
    broken = [one for one in found.scenarios if not one.found.is_kept]
    said = (
        f"The {whose} keeps every promise in all of these."
        if not broken
        else f"A promise breaks with: {', '.join(one.name for one in broken)}."
    )
    limit = found.first_broken_load
    headroom = (
        f"Up to {found.loads[-1][0]:.0%} of the expected traffic every promise is kept."
        if limit is None
        else f"Of the loads tried, {limit:.0%} of the expected traffic is the first at which a promise breaks."
    )
    spare = (
        "" if data.fleet.deployment.replicas > 1 else " With a single replica, there is no service while it is down."
    )
    return section(
        "sensitivity",
        "If traffic or fleet change",
        grid(
            picture(svg_uri(draw_scenarios(data)), "Other traffic, or one replica less", said + spare),
            picture(
                svg_uri(draw_load_cost(data)),
                "Cost per million output tokens against load",
                f"The same GPUs write more tokens under more load. {headroom}",
            ),
        ),
    )


def flags_section(data: ReportData) -> str:
    """The configuration as commands."""
    title, found = "Start it", serving(data.fleet, data.knobs)
    if found is None:
        text = (
            f"No published {data.shown.tier_name} checkpoint of this model is known here: quantise one (for example "
            "with llm-compressor), and start it with the batch limits above."
        )
        return section("flags", title, paragraph(text, "warning"))
    rows = "".join(
        f'<tr><td><code>{escape(" ".join(flag.words))}</code></td><td class="why">{inline(flag.why)}</td></tr>'
        for flag in found.flags
    )
    replicas = data.shown.replicas
    return section(
        "flags",
        title,
        paragraph(
            f"Start {replicas} of these behind a load balancer that sends each request to the least loaded one."
            if replicas > 1
            else "Start one of these."
        ),
        f"<pre><code>{escape(serve_command(found))}</code></pre>",
        f'<div class="scroll"><table><tbody>{rows}</tbody></table></div>',
        bullets(list(found.notes)),
        "<details><summary>As a docker command</summary><pre><code>"
        f"{escape(docker_command(found))}</code></pre></details>",
        "<details><summary>As a Kubernetes deployment</summary><pre><code>"
        f"{escape(kubernetes_manifest(found, data.task.id, replicas))}</code></pre></details>",
    )


def made_section(data: ReportData, command: str) -> str:
    """How to make the page again, and which assumptions it rests on."""
    task, answer = data.task, data.answer
    facts = [
        f"Command: `{command}`.",
        f"Task `{task.id}` version {task.version}; environment {ENVIRONMENT_VERSION}, package {PACKAGE_VERSION}, "
        f"commit {data.commit}.",
        f"Searched on seeds {answer.search_seeds}, verified and shown on seeds {answer.fresh_seeds}.",
        f"Simulated on the latency profile `{data.shown.profile}`; docs/fidelity.md says how far to believe it.",
        "SLOs, patience and draft acceptance are assumptions of the task file, not of the traffic: change them there.",
        "`llmserve task check`, `tune` and `capacity` show the same answer; it is stored beside the task.",
    ]
    if answer.rounds:
        facts.insert(3, f"{answer.rounds} earlier recommendation(s) broke a promise on fresh traffic.")
    return section("made", "How this was made", bullets(facts))
