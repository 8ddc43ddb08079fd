"""Requests made up from the OpenAPI document, and made-up messages for `/mcp` and the WebSockets.

`python -m tests.server.fuzzing 1000` makes so many per operation and per kind of message.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from typing import Any, TypeAlias

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.core.result import Ok

from llmserve_env.env.warmup import warm_up
from llmserve_env.server.application import create_app
from llmserve_env.server.llmserve_environment import NAME
from tests.server.conftest import settings as server_settings
from tests.server.fuzzing_messages import DOORS, fuzz_messages

Operation: TypeAlias = schemathesis.APIOperation[Any, Any, Any, Any]
MAX_LIVE_SESSIONS = 8
REFUSED = range(500, 503)
"""503 is how the server says that it is full."""


def operations() -> list[Operation]:
    """Every method of every path."""
    app = create_app(server_settings(max_live_sessions=MAX_LIVE_SESSIONS))
    found = list(schemathesis.openapi.from_asgi("/openapi.json", app).get_all_operations())
    read = [operation.ok() for operation in found if isinstance(operation, Ok)]
    assert len(read) == len(found), "the OpenAPI document has operations that cannot be read"
    return read


HEADERS = st.dictionaries(
    st.sampled_from(["x-request-id", "x-forwarded-for", "cookie", "user-agent", "origin", "accept", "range"]),
    st.text(st.characters(min_codepoint=33, max_codepoint=255, exclude_categories=["Cc", "Zs"]), max_size=30),
    max_size=3,
)
PARAMETERS = st.dictionaries(
    st.text(max_size=10), st.text(st.characters(exclude_categories=["Cs"]), max_size=10), max_size=2
)
"""What a request may have beside the documented parameters; many operations have none."""


def fuzz(operation: Operation, requests: int) -> Counter[int]:
    """How often each status was answered; an AssertionError shows the request that broke the server."""
    answered: Counter[int] = Counter()

    @settings(
        max_examples=requests,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(), headers=HEADERS, parameters=PARAMETERS, is_ours=st.booleans())
    def ask(case: schemathesis.Case[Any], headers: dict[str, str], parameters: dict[str, str], is_ours: bool) -> None:
        if is_ours and "env_name" in case.path_parameters:
            case.path_parameters["env_name"] = NAME
        # The documented parameters count.
        named = {**parameters, **(case.query or {})}
        status = case.call(headers=headers, params=named).status_code
        assert status not in REFUSED, f"{operation.label} answered {status}: {case.as_curl_command()}"
        answered[status] += 1

    ask()
    assert answered.total() >= requests, f"only {answered.total()} requests could be made up for {operation.label}"
    return answered


def main() -> None:
    """The command."""
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    warnings.simplefilter("ignore")
    warm_up(show_progress=True)
    found = {operation.label: fuzz(operation, requests) for operation in operations()}
    asked = sum(sum(answered.values()) for answered in found.values())
    good = sum(answered[200] for answered in found.values())
    fewest = min(answered.total() for answered in found.values())
    print(f"{len(found)} operations, {asked:,} requests, {fewest:,} or more each:")
    print(f"{good:,} answered with 200, the others refused, none with 500")
    for door in DOORS:
        answered = fuzz_messages(door, requests)
        counts = ", ".join(f"{count:,} {kind}" for kind, count in answered.most_common())
        print(f"{door}, {answered.total():,} messages: {counts}; none with an unexpected error")


if __name__ == "__main__":
    main()
