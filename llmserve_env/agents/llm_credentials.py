"""Which key goes to which host. A key is never sent to a host that it was not made for or set together with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

HUGGING_FACE_URL = "https://router.huggingface.co/v1"
"""The OpenAI-compatible API that takes Hugging Face's tokens."""
MISSING = (
    "the llm agent needs a key: set OPENAI_API_KEY for OpenAI, HF_TOKEN for Hugging Face, or API_BASE_URL and API_KEY "
    "for another provider; any text will do for a server that checks none"
)


@dataclass(frozen=True, slots=True)
class Credentials:
    """A key and the address it may be sent to; no address stands for OpenAI's."""

    api_key: str | None
    base_url: str | None


def credentials_from(environment: Mapping[str, str]) -> Credentials:
    """The key and the address that the environment variables name together.

    With API_BASE_URL, whichever key is set is meant for it. Without it, each key goes to its own provider, and API_KEY,
    which belongs to none, is not used.
    """
    base_url = environment.get("API_BASE_URL") or None
    if base_url is not None:
        names = ("API_KEY", "OPENAI_API_KEY", "HF_TOKEN")
        return Credentials(next(filter(None, map(environment.get, names)), None), base_url)
    if environment.get("OPENAI_API_KEY"):
        return Credentials(environment["OPENAI_API_KEY"], None)
    if environment.get("HF_TOKEN"):
        return Credentials(environment["HF_TOKEN"], HUGGING_FACE_URL)
    return Credentials(None, None)
