"""Models from their config.json or by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llmserve_env.errors import ProfileError
from llmserve_env.profiles.model_spec import find_model, known_models, model_from_config

BILLIONS = {
    "llama-3.1-8b": (8.0, 8.0),
    "llama-3.3-70b": (70.6, 70.6),
    "qwen3-32b": (32.8, 32.8),
    "qwen3-30b-a3b": (30.5, 3.3),
    "qwen3-235b-a22b": (235.1, 22.2),
    "mixtral-8x7b": (46.7, 12.9),
    "gpt-oss-120b": (116.8, 5.7),
    "deepseek-v3": (671.0, 37.6),
    "kimi-k2": (1026.4, 32.9),
    "mistral-nemo-12b": (12.2, 12.2),
}
"""Parameters in all and active per token, embeddings included, as the models' cards say them."""


@pytest.mark.parametrize("name", BILLIONS)
def test_parameters_are_those_of_the_model_s_card(name: str) -> None:
    model = find_model(name)
    total = model.other_parameters + model.expert_parameters + model.embedding_parameters
    assert total / 1e9 == pytest.approx(BILLIONS[name][0], rel=0.01)
    assert (model.active_parameters + model.embedding_parameters) / 1e9 == pytest.approx(BILLIONS[name][1], rel=0.03)


def test_models_are_found_by_hub_name_and_by_file(tmp_path: Path) -> None:
    assert find_model("Qwen/Qwen3-32B") == find_model("qwen3-32b")
    folder = tmp_path / "My Model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    assert find_model(folder).name == find_model(folder / "config.json").name == "my-model"
    assert find_model(folder).heads == 8


def test_windows_experts_latent_attention_and_norms_are_read() -> None:
    oss, kimi, minimax = (find_model(name) for name in ("gpt-oss-120b", "kimi-k2", "minimax-m2.5"))
    assert (oss.window, oss.windowed_layers, oss.full_layers) == (128, 18, 18)
    assert kimi.latent is not None
    assert kimi.latent.kv_lora_rank == 512
    assert (minimax.norms, find_model("qwen3-8b").norms, oss.norms) == ("layer", "head", "none")
    assert {find_model(name).kind for name in known_models()} == {"dense", "experts", "latent"}


CONFIG: dict[str, Any] = {
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "intermediate_size": 4096,
    "vocab_size": 1000,
}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"hidden_size": None}, "hidden_size missing or no whole number"),
        ({"vocab_size": "many"}, "vocab_size missing or no whole number"),
        ({"num_local_experts": 8}, "8 experts but no num_experts_per_tok"),
        ({"num_experts": 8, "num_experts_per_tok": 2, "intermediate_size": None}, "experts without"),
        ({"kv_lora_rank": 512}, "latent attention lacks q_lora_rank"),
    ],
)
def test_a_config_without_a_needed_field_names_it(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ProfileError, match=complaint):
        model_from_config({**CONFIG, **changes}, "mine")


def test_an_unknown_model_names_those_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"model 'llama-9' is not known; choose one of llama-3-8b, .*config\.json"):
        find_model("llama-9")
    with pytest.raises(ProfileError, match=r"cannot be read as the config\.json of a model"):
        find_model(tmp_path)
