"""Train a language model to control serving with TRL's GRPO, rewarded by the environment through its OpenEnv client.

Needs a server (`uvicorn server.app:app --port 7860`) and `pip install trl transformers datasets`. Then

    python examples/trl_grpo.py --model Qwen/Qwen2.5-0.5B-Instruct --url http://localhost:7860 --steps 200

A prompt shows the model one moment of an episode, and its answer is a JSON action. The environment replays the episode
up to that moment and serves several windows under the action; their mean reward is the reward of the answer. An answer
that is not an action gets the lowest possible reward. `--tiny` uses a random model of a few thousand weights, to test
the setup.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from llmserve_env import SEED_RANGES, LLMServeEnv, load_task
from llmserve_env.agents.llm_prompt import observation_text, parse_action, system_prompt, user_prompt
from llmserve_env.engine.knobs import mapping_from_knobs
from llmserve_env.errors import InvalidActionError
from llmserve_env.evaluation.remote import view_from_wire

LOWEST_REWARD = -1.0
WINDOWS_SHOWN = 3
WINDOWS_REWARDED = 5


def reach(env: LLMServeEnv, task_id: str, seed: int, step: int) -> list[str]:
    """Advance the session to a step under the default knobs; return the windows just before it as text."""
    task = load_task(task_id)
    observation = env.reset(task_id=task_id, seed=seed)
    shown = []
    for _ in range(step):
        observation, _, _, _ = env.step({})
        view = view_from_wire(task, observation)
        shown.append(observation_text(task, view.step, view.metrics[0], view.knobs[0]))
    return shown[-WINDOWS_SHOWN:]


def make_dataset(env: LLMServeEnv, task_id: str, size: int) -> Dataset:
    """Moments of training episodes, as prompts with the data needed to return to them."""
    rows = []
    for index in range(size):
        seed, step = SEED_RANGES["training"][index], 5 + (7 * index) % 60
        messages = [
            {"role": "system", "content": system_prompt(load_task(task_id))},
            {"role": "user", "content": user_prompt(reach(env, task_id, seed, step))},
        ]
        rows.append({"prompt": messages, "task_id": task_id, "seed": seed, "step": step})
    return Dataset.from_list(rows)


def make_reward(env: LLMServeEnv) -> Any:
    """The reward function: the environment's mean reward under each answer."""

    def serving_reward(
        completions: Sequence[Any], task_id: Sequence[str], seed: Sequence[int], step: Sequence[int], **_: Any
    ) -> list[float]:
        paid = []
        for completion, name, episode_seed, moment in zip(completions, task_id, seed, step, strict=True):
            try:
                task = load_task(name)
                action = mapping_from_knobs(parse_action(completion[0]["content"], task), task.action_knobs)
            except InvalidActionError:
                paid.append(LOWEST_REWARD)
                continue
            reach(env, name, episode_seed, moment)
            rewards = [env.step(action)[1] for _ in range(WINDOWS_REWARDED)]
            paid.append(sum(rewards) / len(rewards))
        return paid

    return serving_reward


def tiny_model(folder: Path) -> str:
    """A random Llama over single characters, saved where TRL can load it."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    characters = [chr(code) for code in range(32, 127)]
    vocabulary = {token: i for i, token in enumerate(["<pad>", "<eos>", "<unk>", *characters])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )
    fast.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    fast.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=1,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


def main(argv: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Train and return the log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://localhost:7860")
    parser.add_argument("--task", default="bursty_workload")
    parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
    parser.add_argument("--tiny", action="store_true", help="use a random model, to test the setup without a download")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--generations", type=int, default=4, help="answers per prompt")
    parser.add_argument("--max-answer-tokens", type=int, default=160)
    parser.add_argument("--output", type=Path, default=Path("runs/trl_grpo"))
    args = parser.parse_args(argv)
    with LLMServeEnv.from_url(args.url) as env:
        config = GRPOConfig(
            output_dir=str(args.output),
            max_steps=args.steps,
            per_device_train_batch_size=args.generations,
            num_generations=args.generations,
            max_completion_length=args.max_answer_tokens,
            logging_steps=1,
            report_to="none",
            use_cpu=args.tiny,
            save_strategy="no",
        )
        model = tiny_model(args.output / "tiny") if args.tiny else args.model
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=make_reward(env),
            args=config,
            train_dataset=make_dataset(env, args.task, args.prompts),
        )
        trainer.train()
    history: list[dict[str, Any]] = trainer.state.log_history
    return history


if __name__ == "__main__":
    for entry in main():
        print(json.dumps(entry))
