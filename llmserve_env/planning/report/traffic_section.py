"""The report's section about the traffic: rates, lengths and promises, and the recording behind a fitted generator."""

from __future__ import annotations

import numpy as np

from llmserve_env.evaluation.markup import bullets, grid, html_table, paragraph, picture, section
from llmserve_env.planning.report.charts import draw_lengths, draw_traffic, svg_uri
from llmserve_env.planning.report.gather import ReportData
from llmserve_env.workloads import sample

QUANTILES = (0.1, 0.5, 0.9, 0.99)


def traffic_section(data: ReportData) -> str:
    """The traffic, and what its classes are promised."""
    traffic, episodes = data.check.traffic, [sample(data.task.workload, seed) for seed in range(4)]
    rows = []
    for name, column, mean in (
        ("prompt tokens", "prompt_tokens", traffic.mean_prompt_tokens),
        ("output tokens", "output_tokens", traffic.mean_output_tokens),
    ):
        values = np.concatenate([getattr(one, column) for one in episodes])
        rows.append([name, f"{mean:,.0f}", *(f"{np.quantile(values, level):,.0f}" for level in QUANTILES)])
    promised = data.answer.own.promises
    promises = [
        [
            service.name,
            "; ".join(one.text.partition(": ")[2] for one in promised if one.class_name == service.name) or "nothing",
            f"{traffic.class_shares[service.name]:.0%}",
            "for ever" if service.patience_s is None else f"{service.patience_s:g} s",
        ]
        for service in data.task.workload.classes
    ]
    return section(
        "traffic",
        "Traffic",
        grid(
            picture(svg_uri(draw_traffic(data)), "Requests per second", "One episode of the generator."),
            picture(svg_uri(draw_lengths(data)), "Lengths", "Prompts and outputs, cumulative."),
        ),
        html_table(["", "mean", *(f"p{100 * level:g}" for level in QUANTILES)], rows),
        html_table(["class", "promised", "share", "clients wait for a first token"], promises, text_columns=2),
        recorded_part(data),
    )


def recorded_part(data: ReportData) -> str:
    """The generator beside the trace it was fitted to."""
    found = data.recorded
    if found is None:
        return ""
    meta = found.trace.metadata
    rows = [[f.name, _number(f.trace), _number(f.generated), f"{f.error:.1%}"] for f in found.fidelity.statistics]
    bounded = [f for f in found.fidelity.statistics if f.max_error is not None]
    met = sum(f.is_met for f in bounded)
    replayed = ""
    if found.replayed is not None:
        kept = "; ".join(f"{one.text}: {one.value_text}" for one in found.replayed.promises)
        replayed = paragraph(f"On the recorded requests themselves, replayed at the task's scale: {kept}.")
    return "".join(
        [
            "<h3>The recording behind it</h3>",
            paragraph(
                f"{len(found.trace):,} requests of `{meta.source}` ({meta.format}; licence: {meta.licence}). "
                "Episodes are drawn from a generator fitted to it, each from another place of the recording."
            ),
            replayed,
            f"<details><summary>Generator against recording: {met} of {len(bounded)} figures within bounds</summary>",
            bullets(list(found.notes)),
            html_table(["figure", "trace", "generator", "error"], rows),
            "</details>",
        ]
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
