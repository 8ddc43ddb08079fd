"""Train a language model to control serving with TRL's GRPO, through the environment's OpenEnv WebSocket client.

Needs a server (`uvicorn server.app:app --port 7860`) and `pip install trl transformers datasets`. Then

    python examples/trl_grpo.py --model Qwen/Qwen2.5-0.5B-Instruct --url http://localhost:7860 --steps 200

A prompt shows the model one moment of an episode, and its answer ends with a JSON object of the knobs to change. The
reward has three parts of equal weight: whether the answer has a JSON object, which share of its fields are knobs with
allowed values, and what the next windows pay. For the last part, sessions of the server replay the episode up to the
moment and serve the windows, several at the same time. The model is evaluated on held-out seeds before and after, and
saved. `--tiny` trains a model of a few thousand weights on a CPU in about a minute, as CI does.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from datasets import Dataset
from transformers import set_seed
from trl import GRPOConfig, GRPOTrainer
from websockets.exceptions import ConnectionClosed

from examples.tiny_model import tiny_model
from llmserve_env import SEED_RANGES, LLMServeWSEnv, load_task
from llmserve_env.agents.llm_answers import last_object
from llmserve_env.agents.llm_prompt import system_prompt, user_prompt
from llmserve_env.errors import InvalidActionError

WINDOWS_SHOWN, WINDOWS_REWARDED = 3, 5
NUM_HELD_OUT, SAMPLES = 8, 4
"""Held-out moments, and answers sampled for each."""
PING_INTERVAL_S, PING_TIMEOUT_S, ANSWER_TIMEOUT_S = 60.0, 600.0, 600.0
"""A machine that a model keeps busy answers late; a server that died closes its connections, which is seen at once."""
ATTEMPTS = 5
"""How many times a piece of work is begun if the server keeps closing its connection."""
HELD_OUT_START = 9_000
"""Offset in the evaluation range: seeds that neither training nor any published table uses."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A window of an episode that is served under the defaults up to there."""

    task_id: str
    seed: int
    step: int


class Sessions:
    """WebSocket sessions of a server, used by several threads at a time."""

    def __init__(self, url: str, count: int, stack: ExitStack) -> None:
        self._free: SimpleQueue[Any] = SimpleQueue()
        for _ in range(count):
            self._free.put(stack.enter_context(self._client(url)))
        self._pool = stack.enter_context(ThreadPoolExecutor(count))

    @staticmethod
    def _client(url: str) -> Any:
        client = LLMServeWSEnv(
            base_url=url,
            message_timeout_s=ANSWER_TIMEOUT_S,
            websocket_ping_interval_s=PING_INTERVAL_S,
            websocket_ping_timeout_s=PING_TIMEOUT_S,
        )
        return client.sync()

    def history(self, moments: Sequence[Moment]) -> list[list[dict[str, Any]]]:
        """The observations of the windows just before each moment."""
        return list(self._pool.map(lambda moment: self.with_session(self._reach, moment), moments))

    def pay(self, moments: Sequence[Moment], actions: Sequence[Mapping[str, Any] | None]) -> list[float]:
        """Mean reward of the windows after each moment under an action, from 0 to 1; 0 for no action."""
        pairs = zip(moments, actions, strict=True)
        return list(self._pool.map(lambda pair: self.with_session(self._serve, *pair), pairs))

    def with_session(self, work: Any, *given: Any) -> Any:
        """What `work` returns when a free session does it."""
        env = self._free.get()
        try:
            for _ in range(ATTEMPTS - 1):
                # The server closes a connection whose client did not answer its pings while the model was busy. The
                # client opens a new one, and all work begins with a reset, so it can simply be done again.
                with suppress(ConnectionClosed, OSError):
                    return work(env, *given)
            return work(env, *given)
        finally:
            self._free.put(env)

    def _reach(self, env: Any, moment: Moment) -> list[dict[str, Any]]:
        seen = [env.reset(task_id=moment.task_id, seed=moment.seed).observation]
        seen += [env.step({}).observation for _ in range(moment.step)]
        return [observation.model_dump() for observation in seen[-WINDOWS_SHOWN:]]

    def _serve(self, env: Any, moment: Moment, action: Mapping[str, Any] | None) -> float:
        if action is None:
            return 0.0
        knobs = {**self._reach(env, moment)[-1]["metadata"]["knobs"], **action}
        rewards: list[float] = [env.step(knobs).reward for _ in range(WINDOWS_REWARDED)]
        return (sum(rewards) / len(rewards) + 1.0) / 2.0


def moments_of(task_id: str, seeds: Sequence[int]) -> list[Moment]:
    """One moment per seed, spread over the first windows of the episode."""
    return [Moment(task_id, seed, 5 + (7 * index) % 30) for index, seed in enumerate(seeds)]


def make_dataset(sessions: Sessions, moments: Sequence[Moment]) -> Dataset:
    """Moments as prompts, with what it takes to return to them."""
    rows = []
    for moment, history in zip(moments, sessions.history(moments), strict=True):
        prompt = [
            {"role": "system", "content": system_prompt(load_task(moment.task_id))},
            {"role": "user", "content": user_prompt(history)},
        ]
        rows.append({"prompt": prompt, "task_id": moment.task_id, "seed": moment.seed, "step": moment.step})
    return Dataset.from_list(rows)


def valid_share(answer: str, task_id: str) -> tuple[float, dict[str, Any] | None]:
    """Which share of the fields of an answer are knobs with allowed values, and the action if all are."""
    task, action = load_task(task_id), last_object(answer)
    if not action:
        return 0.0, None
    accepted = 0
    for name, value in action.items():
        try:
            task.knobs_from_mapping({name: value})
            accepted += 1
        except InvalidActionError:
            pass
    return accepted / len(action), action if accepted == len(action) else None


def rewards_of(sessions: Sessions) -> list[Any]:
    """The three parts of the reward, each from 0 to 1."""

    def texts(completions: Sequence[Any]) -> list[str]:
        return [completion[0]["content"] for completion in completions]

    def format_reward(completions: Sequence[Any], **_: Any) -> list[float]:
        return [float(last_object(text) is not None) for text in texts(completions)]

    def validity_reward(completions: Sequence[Any], task_id: Sequence[str], **_: Any) -> list[float]:
        return [valid_share(text, name)[0] for text, name in zip(texts(completions), task_id, strict=True)]

    def return_reward(
        completions: Sequence[Any], task_id: Sequence[str], seed: Sequence[int], step: Sequence[int], **_: Any
    ) -> list[float]:
        moments = [Moment(*where) for where in zip(task_id, seed, step, strict=True)]
        actions = [valid_share(text, name)[1] for text, name in zip(texts(completions), task_id, strict=True)]
        return sessions.pay(moments, actions)

    return [format_reward, validity_reward, return_reward]


def evaluate(trainer: GRPOTrainer, rewards: Sequence[Any], held_out: Dataset, args: argparse.Namespace) -> float:
    """Mean reward of sampled answers on held-out moments, from 0 to 3; the same model gives the same figure."""
    model, tokenizer = trainer.model.eval(), trainer.processing_class
    set_seed(args.seed)
    answers, rows = [], []
    for row in held_out:
        text = tokenizer.apply_chat_template(row["prompt"], tokenize=False, add_generation_prompt=True)
        tokens = tokenizer(text, return_tensors="pt").to(model.device)
        sampling = {"do_sample": True, "num_return_sequences": SAMPLES, "max_new_tokens": args.max_answer_tokens}
        out = model.generate(**tokens, **sampling)[:, tokens["input_ids"].shape[1] :]
        answers += [
            [{"role": "assistant", "content": text}] for text in tokenizer.batch_decode(out, skip_special_tokens=True)
        ]
        rows += [row] * SAMPLES
    columns = {name: [row[name] for row in rows] for name in ("task_id", "seed", "step")}
    parts = [part(completions=answers, **columns) for part in rewards]
    return sum(sum(part) for part in parts) / len(answers)


def settings(args: argparse.Namespace) -> GRPOConfig:
    """GRPO's settings; a tiny model learns fast and needs neither a GPU nor a reference model."""
    tiny = {"use_cpu": True, "learning_rate": 5e-3} if args.tiny else {"learning_rate": 1e-6}
    return GRPOConfig(
        output_dir=str(args.output),
        max_steps=args.steps,
        per_device_train_batch_size=args.generations * args.prompts_per_step,
        num_generations=args.generations,
        max_completion_length=args.max_answer_tokens,
        logging_steps=1,
        report_to="none",
        save_strategy="no",
        seed=args.seed,
        **tiny,
    )


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://localhost:7860")
    parser.add_argument("--task", default="bursty_workload")
    parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
    parser.add_argument("--tiny", action="store_true", help="a model of a few thousand weights, to try the setup")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--generations", type=int, default=8, help="answers per prompt")
    parser.add_argument("--prompts-per-step", type=int, default=2)
    parser.add_argument("--sessions", type=int, default=8, help="WebSocket sessions at the same time")
    parser.add_argument("--max-answer-tokens", type=int, default=160)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("runs/trl_grpo"))
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Train; the reward on held-out seeds before and after, the log, and where the model is."""
    args = arguments(argv)
    with ExitStack() as stack:
        sessions = Sessions(args.url, args.sessions, stack)
        train = make_dataset(sessions, moments_of(args.task, SEED_RANGES["training"][: args.prompts]))
        seeds = SEED_RANGES["evaluation"][HELD_OUT_START : HELD_OUT_START + NUM_HELD_OUT]
        held_out = make_dataset(sessions, moments_of(args.task, seeds))
        rewards = rewards_of(sessions)
        trainer = GRPOTrainer(
            model=tiny_model(args.output / "tiny", args.seed) if args.tiny else args.model,
            reward_funcs=rewards,
            args=settings(args),
            train_dataset=train,
        )
        before = evaluate(trainer, rewards, held_out, args)
        trainer.train()
        after = evaluate(trainer, rewards, held_out, args)
        saved = args.output / "model"
        trainer.save_model(str(saved))
    return {"before": before, "after": after, "model": str(saved), "history": trainer.state.log_history}


if __name__ == "__main__":
    found = main()
    for entry in found["history"]:
        print(json.dumps(entry))
    print(f"held-out reward (0 to 3): {found['before']:.3f} before, {found['after']:.3f} after; saved {found['model']}")
