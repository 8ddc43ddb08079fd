"""Untrusted YAML: refused before it can exhaust the stack or the memory, and never ambiguous."""

from __future__ import annotations

from typing import Any

import yaml

# The compiled parser, where PyYAML has it, reads a trace's tables ten times as fast.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MAX_DEPTH = 40
"""Levels of nesting; the parser calls itself for each, and would end the process with its stack."""
MAX_CHARS = 20_000_000


class StrictLoader(_Loader):  # type: ignore[misc]
    """Plain values only, and every key once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping; a repeated key, which would silently replace the first, is refused."""
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if isinstance(key, yaml.ScalarNode) and name in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{name[:80]!r} is given twice in one mapping", key.start_mark
                )
            seen.add(name)
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


def _refuse(problem: str, event: yaml.Event) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(None, None, problem, event.start_mark)  # type: ignore[arg-type]  # the compiled parser has marks of its own


def check_shape(text: str) -> None:
    """Raise a MarkedYAMLError for text that is nested too deeply, or has aliases within anchored values."""
    if len(text) > MAX_CHARS:
        raise yaml.YAMLError(f"{len(text):,} characters; at most {MAX_CHARS:,} are read")
    # What is open: whether each collection, or one around it, has an anchor.
    anchored: list[bool] = []
    for event in yaml.parse(text, Loader=_Loader):
        is_inside = bool(anchored) and anchored[-1]
        if isinstance(event, yaml.AliasEvent) and is_inside:
            # Aliases of aliases grow exponentially when they are written out.
            raise _refuse("an alias stands inside an anchored value; write the value out", event)
        if isinstance(event, yaml.CollectionStartEvent):
            anchored.append(is_inside or event.anchor is not None)
            if len(anchored) > MAX_DEPTH:
                raise _refuse(f"nested more than {MAX_DEPTH} levels deep", event)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchored.pop()


def load(text: str) -> Any:
    """The values of a YAML text; a YAMLError or a ValueError says what is wrong with it."""
    check_shape(text)
    return yaml.load(text, Loader=StrictLoader)


def compose(text: str) -> Any:
    """The nodes of a YAML text, with their lines."""
    check_shape(text)
    return yaml.compose(text, Loader=_Loader)
