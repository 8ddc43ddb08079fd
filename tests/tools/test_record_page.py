"""The README's animation."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image, ImageSequence

from tools.record_page import record


@pytest.mark.browser
def test_the_animation_is_recorded_by_the_page_without_a_server(tmp_path: Path) -> None:
    record(tmp_path / "episode.gif")
    with Image.open(tmp_path / "episode.gif") as clip:
        frames = [frame.convert("RGB").tobytes() for frame in ImageSequence.Iterator(clip)]
        assert clip.format == "GIF"
    assert len(set(frames)) == len(frames) == 80
