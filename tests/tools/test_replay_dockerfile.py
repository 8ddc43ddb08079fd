"""The replay reads the Dockerfile as Docker would, for the instructions it uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.replay_dockerfile import ROOT, Image, instructions, replay, size_mb


def test_continued_lines_are_one_instruction_and_comments_are_none() -> None:
    text = "# syntax\nFROM x\nRUN one \\\n  && two\n\n# why\nENV A=1 \\\n    B=2\n"
    assert list(instructions(text)) == [("FROM", "x"), ("RUN", "one    && two"), ("ENV", "A=1      B=2")]


def test_the_images_paths_are_moved_below_the_root(tmp_path: Path) -> None:
    image = Image(tmp_path)
    assert image.place("cp /opt/x /tmp") == f"cp {tmp_path}/opt/x {tmp_path}/tmp"
    assert image.place("mkdir /data") == f"mkdir {tmp_path}/data"
    assert image.place("/usr/tmp/opt.d a/app /optional") == "/usr/tmp/opt.d a/app /optional"


def test_instructions_take_effect_and_a_new_stage_starts_afresh(tmp_path: Path) -> None:
    image = Image(tmp_path)
    stages = ["FROM a", "ENV X=1", "FROM b", "ENV HOME=/tmp Y=2", "WORKDIR /app/env", "RUN echo $Y > made", 'CMD ["a"]']
    replay(image, "\n".join(stages))
    assert (image.env, image.command) == ({"HOME": "/tmp", "Y": "2"}, ["a"])
    assert (tmp_path / "app" / "env" / "made").read_text(encoding="utf-8") == "2\n"
    assert size_mb(tmp_path) == pytest.approx(2e-6)


@pytest.mark.parametrize("text", ["FROM a\nRUN exit 3", "FROM a\nVOLUME /x", "FROM a\nCOPY --from=b /opt/none /opt"])
def test_what_fails_or_is_unknown_stops_the_replay(tmp_path: Path, text: str) -> None:
    with pytest.raises(SystemExit):
        replay(Image(tmp_path), text)


def test_the_dockerfile_is_what_spaces_and_openenv_need() -> None:
    found = list(instructions((ROOT / "Dockerfile").read_text(encoding="utf-8")))
    assert [name for name, _ in found].count("FROM") == 2
    assert ("EXPOSE", "7860 8000") in found
    assert any(name == "USER" and argument != "root" for name, argument in found)
    assert any(name == "HEALTHCHECK" for name, _ in found)
    assert all(name != "VOLUME" for name, _ in found)
    assert any(name == "COPY" and "/app/env/server" in argument for name, argument in found)
    assert any(name == "RUN" and "llmserve_env.env.warmup" in argument for name, argument in found)
