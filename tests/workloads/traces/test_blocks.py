from __future__ import annotations

import numpy as np

from llmserve_env.workloads.traces.blocks import MIN_BRANCHES, shared_prefixes

BLOCK = 512


def shared(prompts: list[tuple[list[int], int]]) -> tuple[list[int], list[int], list[int]]:
    blocks = [np.array(ids, dtype=np.int64) for ids, _ in prompts]
    found = shared_prefixes(blocks, np.array([tokens for _, tokens in prompts]), BLOCK)
    return found.session_id.tolist(), found.prefix_id.tolist(), found.prefix_tokens.tolist()


def test_a_prompt_that_contains_an_earlier_one_continues_its_session() -> None:
    # The last block of the first prompt is partly filled, so the second prompt holds it under another hash.
    sessions, _, _ = shared([([1, 2, 3], 2 * BLOCK + 100), ([7], 100), ([1, 2, 4, 5], 4 * BLOCK)])
    assert sessions == [0, 1, 0]


def test_a_prompt_that_leaves_an_earlier_one_halfway_is_a_session_of_its_own() -> None:
    sessions, _, _ = shared([([1, 2, 3], 3 * BLOCK), ([1, 2, 9], 3 * BLOCK)])
    assert sessions == [0, 1]


def test_a_block_that_many_go_on_from_ends_a_system_prompt() -> None:
    prompts = [([1, 2, 100 + i], 2 * BLOCK + 50) for i in range(MIN_BRANCHES)]
    sessions, prefix, tokens = shared([*prompts, ([50], 10)])
    assert len(set(sessions)) == len(sessions)
    assert prefix == [0] * MIN_BRANCHES + [-1]
    assert tokens == [2 * BLOCK] * MIN_BRANCHES + [0]


def test_too_few_branches_are_no_system_prompt() -> None:
    _, prefix, tokens = shared([([1, 100 + i], 2 * BLOCK) for i in range(MIN_BRANCHES - 1)])
    assert set(prefix) == {-1}
    assert set(tokens) == {0}


def test_a_prefix_never_exceeds_its_prompt() -> None:
    prompts = [([1, 100 + i], 2 * BLOCK) for i in range(MIN_BRANCHES)]
    _, _, tokens = shared([*prompts, ([1], 40)])
    assert tokens[-1] == 40
