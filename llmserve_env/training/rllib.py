"""RLlib's PPO on the same environment, with as many processes that play as the cluster has."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from gymnasium import spaces
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

from llmserve_env.agents.policy_format import PolicyFormat
from llmserve_env.arrays import Array
from llmserve_env.env.spaces import FEATURE_LIMIT
from llmserve_env.evaluation.ray_runner import cluster
from llmserve_env.evaluation.seeds import SEED_RANGES
from llmserve_env.gym_envs.single import LLMServeGymEnv
from llmserve_env.training.results import Layers, Record, RunTimes, Trained
from llmserve_env.training.settings import TrainingRun, drawn_tasks

ENVS_PER_RUNNER = 8


class RayServingEnv(LLMServeGymEnv):
    """The environment on training seeds; each copy plays one of the run's tasks, in turn."""

    def __init__(self, config: Any) -> None:
        tasks = config["tasks"]
        index = config.worker_index * ENVS_PER_RUNNER + config.vector_index
        super().__init__(tasks[index % len(tasks)], grades=False)
        self._format: PolicyFormat = config["format"]
        self.actions = self._format.codec(self.task)
        self.action_space = self.actions.space
        width = len(self._format.feature_names(self.task))
        self.observation_space = spaces.Box(-FEATURE_LIMIT, FEATURE_LIMIT, (width,), np.float32)
        self._training_rng = np.random.default_rng(np.random.SeedSequence((config["seed"], index)))

    def _observe(self) -> Array:
        inputs: Array = self._format.inputs(self.task, self.episode.batch.features())[0]
        return inputs

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode on a training seed; the seed that RLlib passes is ignored."""
        seeds = SEED_RANGES["training"]
        return super().reset(seed=int(self._training_rng.integers(seeds.start, seeds.stop)), options=options)


def ray_config(run: TrainingRun, num_env_runners: int) -> PPOConfig:
    """RLlib's names for the hyper-parameters of `ppo.yaml`."""
    h = run.hyper_parameters
    schedule = [[0, h.learning_rate], [run.num_steps, h.final_learning_rate]]
    return (
        PPOConfig()
        .environment(
            RayServingEnv, env_config={"tasks": [*run.tasks, *drawn_tasks(run)], "seed": run.seed, "format": h.format}
        )
        .env_runners(num_env_runners=num_env_runners, num_envs_per_env_runner=ENVS_PER_RUNNER)
        .training(
            lr=schedule,
            gamma=h.gamma,
            lambda_=h.gae_lambda,
            clip_param=h.clip_range,
            entropy_coeff=h.ent_coef,
            vf_loss_coeff=h.vf_coef,
            vf_clip_param=float("inf"),
            grad_clip=h.max_grad_norm,
            grad_clip_by="global_norm",
            use_kl_loss=False,
            train_batch_size_per_learner=h.num_envs * h.n_steps,
            minibatch_size=h.batch_size,
            num_epochs=h.n_epochs,
        )
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_hiddens=list(h.hidden), fcnet_activation="tanh", vf_share_layers=False
            )
        )
        .debugging(seed=run.seed, log_level="ERROR")
    )


def module_layers(algorithm: Algorithm) -> Layers:
    """The policy of RLlib's module, layer by layer."""
    state = algorithm.get_module().get_state()
    layers = []
    for prefix in ("encoder.actor_encoder.net.mlp.", "pi.net.mlp."):
        names = sorted((n for n in state if n.startswith(prefix) and n.endswith(".weight")), key=_position)
        layers += [(_array(state[name]), _array(state[name.removesuffix("weight") + "bias"])) for name in names]
    return layers


def _position(name: str) -> int:
    return int(name.split(".")[-2])


def _array(value: Any) -> Any:
    return np.array(value, dtype=np.float32)


def train_on_ray(run: TrainingRun, num_env_runners: int, address: str | None) -> Trained:
    """Train, and write the same files as the local trainer; time inside the environment is RLlib's sampling time."""
    record, environment_s = Record(run), 0.0
    began, began_cpu = time.perf_counter(), time.process_time()
    with cluster(address, None if address else num_env_runners + 1):
        algorithm = ray_config(run, num_env_runners).build_algo()
        step, next_validation = 0, 0
        while step < run.num_steps:
            result = algorithm.train()
            runners = result["env_runners"]
            step = int(runners["num_env_steps_sampled_lifetime"])
            environment_s += float(result["timers"]["env_runner_sampling_timer"])
            if "episode_return_mean" in runners:
                record.note_return(step, float(runners["episode_return_mean"]))
            if step >= next_validation or step >= run.num_steps:
                record.validate(module_layers(algorithm), step)
                next_validation = step + run.num_steps // run.num_validations
        algorithm.stop()
    total_s, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    # The environment runs in other processes, whose CPU time this one cannot see.
    times = RunTimes(total_s, environment_s, record.seconds, cpu_s, environment_cpu_s=0.0)
    return Trained(record.write("rllib"), record.best_score, record.best_step, times)
