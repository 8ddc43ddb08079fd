"""Pieces of HTML, and whole pages that need nothing from elsewhere: the evaluation and the report are made of them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape


def page(title: str, style: str, body: str) -> str:
    """A document with its style sheet inside."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head>\n"
        f"<body><main>{body}</main></body></html>\n"
    )


def embedded(picture: bytes, media_type: str) -> str:
    """A picture as an address that holds the picture itself."""
    return f"data:{media_type};base64,{base64.b64encode(picture).decode('ascii')}"


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph; backticks mark code."""
    return f"<p{_class(kind)}>{inline(text)}</p>"


def inline(text: str) -> str:
    """Escaped text with `code` between backticks."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def picture(uri: str, title: str, caption: str = "", *, is_wide: bool = False) -> str:
    """A picture with its title and caption; a wide one keeps a readable size on a phone and scrolls sideways there."""
    below = f"<figcaption>{inline(caption)}</figcaption>" if caption else ""
    image = f'<img alt="{escape(title)}" src="{uri}">'
    if is_wide:
        image = f'<div class="scroll" tabindex="0">{image}</div>'
    return f"<figure><h3>{escape(title)}</h3>{image}{below}</figure>"


def grid(*pictures: str) -> str:
    """Pictures side by side where there is room."""
    return f'<div class="grid">{"".join(pictures)}</div>'


def cards(items: Sequence[tuple[str, str]]) -> str:
    """Large figures, each with what it is."""
    inner = "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{inline(label)}</span></div>' for value, label in items
    )
    return f'<div class="cards">{inner}</div>'


def html_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, text_columns: int = 1, chosen: int | None = None
) -> str:
    """A table that scrolls sideways on narrow screens; columns after the first `text_columns` hold numbers."""

    def cells(values: Sequence[str], tag: str) -> str:
        return "".join(
            f"<{tag}{_class('number' if i >= text_columns else '')}>{inline(value)}</{tag}>"
            for i, value in enumerate(values)
        )

    body = "".join(
        f"<tr{_class('chosen' if i == chosen else '')}>{cells(row, 'td')}</tr>" for i, row in enumerate(rows)
    )
    head = cells(header, "th")
    # With a tabindex, the table can be scrolled with the keyboard, too.
    return f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def section(name: str, title: str, *parts: str) -> str:
    """A part of the page with a heading that can be linked to."""
    return f'<section id="{name}"><h2>{escape(title)}</h2>{"".join(parts)}</section>'


def bullets(items: Sequence[str]) -> str:
    """A list."""
    return f"<ul>{''.join(f'<li>{inline(item)}</li>' for item in items)}</ul>"


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""
