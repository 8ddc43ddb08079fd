"""A profile as text tables and as a plot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from llmserve_env.profiles.prediction import predict_ps
from llmserve_env.profiles.schema import Profile
from llmserve_env.units import BYTES_PER_GB, PS_PER_MS

DECODE_ROWS = ((1, 1024), (8, 1024), (32, 256), (32, 1024), (128, 256), (128, 1024), (256, 1024), (64, 8192))
PREFILL_ROWS = ((512, 0), (1024, 0), (2048, 0), (8192, 0), (2048, 6144))
DEPTHS = (1, 2, 4, 8)


def describe(profile: Profile) -> str:
    """The data, terms and typical iterations of a profile, as `llmserve profile show` prints them."""
    sections = [_facts(profile), _terms(profile), _iterations(profile), _curves(profile)]
    return "\n\n".join("\n".join(lines) for lines in sections)


def aligned(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Columns aligned: the first to the left, the others to the right."""
    cells = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    return [
        "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in cells
    ]


def _facts(profile: Profile) -> list[str]:
    gpu, model, origin = profile.gpu, profile.model, profile.provenance
    return [
        f"{profile.name}: {model.name} on {gpu.name}",
        f"  memory {gpu.memory_bytes / BYTES_PER_GB:.1f} GB at {gpu.memory_bandwidth_bytes_per_s / 1e9:.0f} GB/s, "
        f"{gpu.price_usd_per_hour:.2f} USD/h, {gpu.power_w:.0f} W",
        f"  KV {model.kv_bytes_per_token} B/token, activations {model.activation_bytes_per_token} B/token, "
        f"logits {model.logits_bytes_per_sequence} B/sequence",
        f"  source: {origin.source} ({origin.date}, {origin.licence})",
        *(f"  note: {note}" for note in origin.notes),
        *(f"  {name}: {tier.origin}; {tier.kernel}" for name, tier in profile.tiers.items()),
    ]


def _terms(profile: Profile) -> list[str]:
    rows = []
    for name, tier in profile.tiers.items():
        error = tier.held_out
        rows.append(
            [
                name,
                f"{tier.weight_bytes / BYTES_PER_GB:.2f}",
                f"{tier.overhead_us:.0f}",
                f"{tier.per_sequence_us:.2f}",
                f"{tier.per_decode_token_us:.2f}",
                f"{tier.per_prefill_token_us:.2f}",
                f"{error.median_pct:.1f} / {error.p95_pct:.1f} / {error.max_pct:.1f}" if error else "-",
            ]
        )
    header = [
        "tier",
        "weights GB",
        "overhead us",
        "us/sequence",
        "us/decode token",
        "us/prefill token",
        "held-out % (median/p95/max)",
    ]
    return aligned(header, rows)


def _iterations(profile: Profile) -> list[str]:
    costs = profile.costs()

    def row(
        label: str, decode: Sequence[tuple[int, int]], prefill: Sequence[tuple[int, int]], depth: int = 0
    ) -> list[str]:
        times = [predict_ps(costs, tier, decode, prefill, depth) / PS_PER_MS for tier in profile.tiers]
        return [label, *(f"{ms:.2f}" for ms in times)]

    rows = [row(f"decode {n} x {c}", [(n, c)], []) for n, c in DECODE_ROWS]
    rows += [row(f"prefill {n} after {past}", [], [(n, past)]) for n, past in PREFILL_ROWS]
    rows += [row("decode 128 x 1024 and prefill 512", [(128, 1024)], [(512, 0)])]
    if profile.draft is not None:
        rows += [row(f"decode 32 x 1024, {d} drafts", [(32, 1024)], [], d) for d in DEPTHS]
    return aligned(["iteration, ms", *profile.tiers], rows)


def _curves(profile: Profile) -> list[str]:
    lines = []
    for name, tier in profile.tiers.items():
        lines.append(f"{name} GEMM, tokens: ms   " + _knots(tier.gemm_tokens.x, tier.gemm_tokens.ms))
    first = next(iter(profile.tiers.values()))
    for attention in first.decode_attention:
        curve = attention.context_tokens
        lines.append(f"decode attention (q = {attention.query_tokens}), context: ms   " + _knots(curve.x, curve.ms))
    pairs = first.prefill_attention_pairs
    lines.append("prefill attention, pairs: ms   " + _knots(pairs.x, pairs.ms))
    return lines


def _knots(x: Sequence[int], ms: Sequence[float], shown: int = 12) -> str:
    step = max(1, len(x) // shown)
    picked = sorted({*range(0, len(x), step), len(x) - 1})
    return ", ".join(f"{x[i]}: {ms[i]:.3g}" for i in picked)


def plot(profile: Profile, path: Path) -> None:
    """Draw the three kinds of curves into an image file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (gemm, decode, prefill) = pyplot.subplots(1, 3, figsize=(15, 4.5), layout="constrained")
    first = next(iter(profile.tiers.values()))
    for name, tier in profile.tiers.items():
        gemm.plot(tier.gemm_tokens.x, tier.gemm_tokens.ms, label=f"{name} ({tier.origin})")
    for attention in first.decode_attention:
        decode.plot(
            attention.context_tokens.x, attention.context_tokens.ms, label=f"{attention.query_tokens} query tokens"
        )
    pairs = first.prefill_attention_pairs
    prefill.plot(pairs.x, pairs.ms)
    axes = (
        (gemm, "GEMM", "tokens"),
        (decode, "decode attention", "total context tokens"),
        (prefill, "prefill attention", "pairs"),
    )
    for axis, title, label in axes:
        axis.set(title=title, xlabel=label, ylabel="ms", xscale="log", yscale="log")
        axis.grid(alpha=0.3)
    gemm.legend()
    decode.legend()
    figure.suptitle(profile.name)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
