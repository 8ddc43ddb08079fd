"""Where the prices of GPUs come from. A task states its own with `deployment.price_usd_per_hour`."""

from __future__ import annotations

from llmserve_env.profiles.store import load_profile

LIST_PRICES = (
    "on-demand list prices of specialised GPU clouds, May 2026 (A100 1.10-1.50, H100 2.50-3.50, H200 3.50-4.50 USD per "
    "hour; mercatus-ai.com/blog/cloud-gpu-pricing)"
)


def price_text(profile: str, price_usd_per_hour: float) -> str:
    """A GPU's price and where it comes from."""
    listed = load_profile(profile).gpu.price_usd_per_hour
    gpu = profile.split("/")[-1].split(".")[0]
    source = LIST_PRICES if price_usd_per_hour == listed else "the task file"
    return f"{gpu} {price_usd_per_hour:.2f} USD per hour: {source}"
