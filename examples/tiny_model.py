"""A language model of a few thousand weights that can write JSON actions, to try training without a download or a GPU.

Its vocabulary is made of pieces of actions, and its chat template passes on only the last line of a question. It is
first taught to write random actions, as a pretrained model can write JSON; which knobs serve well it does not know.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from llmserve_env.agents.llm_prompt import QUESTION

SPECIAL = ("<pad>", "<eos>", "<unk>")
KNOBS = {'"batch_cap": ': ("8", "32", "96", "192"), '"kv_budget_fraction": ': ("0.1", "0.2", "0.4", "1.0")}
PIECES = ("{", ", ", "}", *KNOBS, *(value for values in KNOBS.values() for value in values))
LESSONS, LESSON_SIZE, LEARNING_RATE = 60, 32, 1e-2


def tiny_model(folder: Path, seed: int = 0) -> str:
    """Make, teach and save a model; its folder."""
    torch.manual_seed(seed)
    tokenizer = _tokenizer()
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(SPECIAL) + len(PIECES),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=64,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=1,
        )
    )
    _teach(model, tokenizer, random.Random(seed))
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return str(folder)


def _tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {token: index for index, token in enumerate((*SPECIAL, *PIECES))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    longest_first = sorted(PIECES, key=len, reverse=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("|".join(map(re.escape, longest_first))), "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )
    fast.chat_template = "{{ messages[-1]['content'].split('\n')[-1] }}"
    return fast


def _action(rng: random.Random) -> str:
    """A random action, as text."""
    return "{" + ", ".join(name + rng.choice(values) for name, values in KNOBS.items()) + "}"


def _teach(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, rng: random.Random) -> None:
    """Teach the model to answer with a random action."""
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    asked = len(tokenizer(QUESTION)["input_ids"])
    for _ in range(LESSONS):
        texts = [QUESTION + _action(rng) + "<eos>" for _ in range(LESSON_SIZE)]
        tokens = tokenizer(texts, return_tensors="pt")["input_ids"]
        labels = tokens.clone()
        labels[:, :asked] = -100
        loss = model(input_ids=tokens, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
