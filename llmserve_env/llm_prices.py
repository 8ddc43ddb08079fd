"""List prices of hosted language models, for the bill of the `llm` agent and of live episodes."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

DEFAULT_MODEL = "gpt-4.1-mini"
"""Model of the `llm` agent and of live episodes, unless another is named."""


@cache
def _listed() -> dict[str, tuple[float, float]]:
    text = files("llmserve_env").joinpath("llm_prices.json").read_text(encoding="utf-8")
    return {model: (float(prices[0]), float(prices[1])) for model, prices in json.loads(text)["models"].items()}


def prices_of(
    model: str, price_in: float | None = None, price_out: float | None = None
) -> tuple[float | None, float | None]:
    """Dollars per million prompt and completion tokens; given prices replace the listed ones, None is unknown."""
    listed_in, listed_out = _listed().get(model, (None, None))
    return (listed_in if price_in is None else price_in), (listed_out if price_out is None else price_out)
