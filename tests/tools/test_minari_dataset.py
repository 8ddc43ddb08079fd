"""Episodes of the shipped agents as a Minari dataset, read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from llmserve_env.gym_envs.single import LLMServeGymEnv
from llmserve_env.tasks.catalog import load_task
from tools.minari_dataset import main

minari = pytest.importorskip("minari", reason="needs minari: pip install 'minari[hdf5]'")


# Minari warns about fields that nobody has to give.
@pytest.mark.filterwarnings("ignore")
def test_a_dataset_holds_the_episodes_as_the_environment_plays_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    assert main(["--task", "static_workload", "--agent", "tuned", "random", "--episodes", "1"]) == 0
    assert "2 episodes, 400 steps" in capsys.readouterr().out
    dataset = minari.load_dataset(f"llmserve/static_workload/tuned-random-v{load_task('static_workload').version}")
    episode, env = dataset[0], LLMServeGymEnv("static_workload")
    observation, _ = env.reset(seed=1_000_000)
    np.testing.assert_array_equal(episode.observations[0], observation)
    for step in range(5):
        observation, reward, *_ = env.step(episode.actions[step])
        np.testing.assert_array_equal(episode.observations[step + 1], observation)
        assert episode.rewards[step] == reward
