"""Options of commands that let a language model play."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmserve_env.agents.llm_settings import LlmSettings

OPTIONS = ("model", "base_url", "decide_every", "history_windows", "max_answer_tokens", "answers", "max_unusable_share")


def add_llm_arguments(parser: Any, *, decide_every: int = 1, base_url: bool = True) -> None:
    """Which model plays and how it is asked; `llm_settings` reads them."""
    group = parser.add_argument_group("language model", "for the agent `llm`; the key is in OPENAI_API_KEY or HF_TOKEN")
    group.add_argument("--model", metavar="NAME", help="default: MODEL_NAME, or gpt-4.1-mini")
    if base_url:
        group.add_argument("--base-url", metavar="URL", help="default: API_BASE_URL, or OpenAI's")
    group.add_argument(
        "--decide-every",
        type=int,
        default=decide_every,
        metavar="N",
        help=f"windows between two questions (default: {decide_every})",
    )
    group.add_argument("--history-windows", type=int, metavar="N", help="windows that a question shows (default: 5)")
    group.add_argument("--max-answer-tokens", type=int, metavar="N", help="reasoning included (default: 1024)")
    group.add_argument(
        "--answers",
        choices=("json", "tool", "text"),
        help="ask for JSON by schema, a call of a tool, or text that ends with JSON (default: json)",
    )
    group.add_argument(
        "--max-unusable-share",
        type=float,
        metavar="SHARE",
        help="share of unusable answers beyond which an episode fails without a score (default: 0.2)",
    )


def llm_settings(args: argparse.Namespace) -> LlmSettings:
    """The settings that a command's options and the environment name."""
    from llmserve_env.agents.llm_settings import LlmSettings

    return LlmSettings.from_environment(**{name: getattr(args, name, None) for name in OPTIONS})
