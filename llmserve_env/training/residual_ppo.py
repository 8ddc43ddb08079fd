"""PPO for small continuous corrections of a rule, over many episodes side by side.

Its choices come from what a fleet is like. A replica that is sent away takes minutes to return, so exploration is
filtered noise rather than flicker. Traffic differs far more between episodes than decisions do, so rewards are
relative to the rule's on the same traffic, and the critic, which plays no part in deployment, sees the traffic to come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from llmserve_env.arrays import Array


class CorrectedEpisodes(Protocol):
    """Episodes side by side in which a policy corrects a rule; an episode that ends begins anew."""

    num_envs: int
    num_features: int
    num_future: int
    num_actions: int
    first_corrections: Array
    """What an untrained policy answers."""

    def observe(self) -> tuple[Array, Array]:
        """What the policy sees, and what only the critic sees besides it: [episode, feature]."""

    def step(self, corrections: Array) -> tuple[Array, Array]:
        """Rewards relative to the rule, and which episodes ended with this step."""


@dataclass(frozen=True, slots=True)
class PpoSettings:
    """Hyper-parameters; the defaults are those that ship."""

    steps: int = 16_000_000
    rollout: int = 40
    epochs: int = 4
    minibatches: int = 8
    learning_rate: float = 2e-3
    final_learning_rate: float = 1e-4
    gamma: float = 0.98
    gae_lambda: float = 0.9
    clip: float = 0.2
    noise: float = 0.25
    final_noise: float = 0.07
    noise_memory: float = 0.9
    """How much of an exploratory deviation remains at the next decision."""
    hidden: int = 64
    max_grad_norm: float = 0.5
    seed: int = 0


def _network(inputs: int, hidden: int, outputs: int, last_gain: float) -> nn.Sequential:
    layers = [nn.Linear(inputs, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, outputs)]
    for layer, gain in zip(layers, (2**0.5, 2**0.5, last_gain), strict=True):
        nn.init.orthogonal_(layer.weight, gain)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


@dataclass(slots=True)
class _Rollout:
    """Tensors of shape [step, episode, ...]."""

    seen: torch.Tensor
    future: torch.Tensor
    actions: torch.Tensor
    carried: torch.Tensor
    log_probs: torch.Tensor
    values: torch.Tensor
    rewards: torch.Tensor
    ends: torch.Tensor


class ResidualPpo:
    """Trains one policy; `layers` has its weights for a forward pass in numpy."""

    def __init__(self, episodes: CorrectedEpisodes, settings: PpoSettings) -> None:
        torch.manual_seed(settings.seed)
        # The networks are small: more threads only wait for one another, and their sums differ from machine to machine.
        torch.set_num_threads(1)
        self._episodes, self._settings = episodes, settings
        self.policy = _network(episodes.num_features, settings.hidden, episodes.num_actions, 0.01)
        with torch.no_grad():
            self.policy[-1].bias.copy_(torch.as_tensor(episodes.first_corrections))
        self._critic = _network(episodes.num_features + episodes.num_future, settings.hidden, 1, 1.0)
        self._optimiser = torch.optim.Adam([*self.policy.parameters(), *self._critic.parameters()], eps=1e-5)
        self._deviation = torch.zeros(episodes.num_envs, episodes.num_actions)
        self._noise = settings.noise

    def learn(self, report: Callable[[int, float], None]) -> None:
        """Train for the steps of the settings; `report(steps, mean reward per step)` follows each update."""
        settings, per_update = self._settings, self._settings.rollout * self._episodes.num_envs
        updates = max(1, settings.steps // per_update)
        for update in range(updates):
            done = update / updates
            rate = settings.learning_rate + done * (settings.final_learning_rate - settings.learning_rate)
            self._noise = settings.noise + done * (settings.final_noise - settings.noise)
            for group in self._optimiser.param_groups:
                group["lr"] = rate
            rollout, last_value = self._play()
            self._update(rollout, last_value)
            report((update + 1) * per_update, float(rollout.rewards.mean()))

    def layers(self) -> list[tuple[Array, Array]]:
        """Weight and bias of every layer of the policy."""
        linear = [layer for layer in self.policy if isinstance(layer, nn.Linear)]
        return [(layer.weight.detach().numpy().copy(), layer.bias.detach().numpy().copy()) for layer in linear]

    def _value(self, seen: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = self._critic(torch.cat((seen, future), dim=-1)).squeeze(-1)
        return value

    def _log_prob(self, actions: torch.Tensor, means: torch.Tensor) -> torch.Tensor:
        spread = self._noise * (1.0 - self._settings.noise_memory**2) ** 0.5
        return torch.sum(-0.5 * ((actions - means) / spread) ** 2, dim=-1)

    @torch.no_grad()
    def _play(self) -> tuple[_Rollout, torch.Tensor]:
        """Play one rollout with filtered noise."""
        settings, rows = self._settings, []
        spread = self._noise * (1.0 - settings.noise_memory**2) ** 0.5
        for _ in range(settings.rollout):
            seen, future = (torch.as_tensor(x, dtype=torch.float32) for x in self._episodes.observe())
            means = self.policy(seen)
            carried = settings.noise_memory * self._deviation
            actions = means + carried + spread * torch.randn_like(means)
            self._deviation = actions - means
            rewards, ends = self._episodes.step(actions.numpy())
            log_probs = self._log_prob(actions, means + carried)
            reward = torch.as_tensor(rewards, dtype=torch.float32)
            end = torch.as_tensor(ends, dtype=torch.float32)
            rows.append((seen, future, actions, carried, log_probs, self._value(seen, future), reward, end))
            self._deviation = self._deviation * (1.0 - end)[:, None]
        seen, future = (torch.as_tensor(x, dtype=torch.float32) for x in self._episodes.observe())
        return _Rollout(*(torch.stack(column) for column in zip(*rows, strict=True))), self._value(seen, future)

    def _advantages(self, rollout: _Rollout, last_value: torch.Tensor) -> torch.Tensor:
        settings, advantages = self._settings, torch.zeros_like(rollout.rewards)
        running, next_value = torch.zeros_like(last_value), last_value
        for t in range(len(rollout.rewards) - 1, -1, -1):
            goes_on = 1.0 - rollout.ends[t]
            delta = rollout.rewards[t] + settings.gamma * next_value * goes_on - rollout.values[t]
            running = delta + settings.gamma * settings.gae_lambda * goes_on * running
            advantages[t], next_value = running, rollout.values[t]
        return advantages

    def _update(self, rollout: _Rollout, last_value: torch.Tensor) -> None:
        settings = self._settings
        advantages = self._advantages(rollout, last_value)
        returns = (advantages + rollout.values).flatten()
        flat = [x.flatten(0, 1) for x in (rollout.seen, rollout.future, rollout.actions, rollout.carried)]
        old_log_probs, advantages = rollout.log_probs.flatten(), advantages.flatten()
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        for _ in range(settings.epochs):
            for rows in torch.randperm(len(returns)).chunk(settings.minibatches):
                seen, future, actions, carried = (x[rows] for x in flat)
                ratio = torch.exp(self._log_prob(actions, self.policy(seen) + carried) - old_log_probs[rows])
                clipped = torch.clamp(ratio, 1.0 - settings.clip, 1.0 + settings.clip)
                gain = torch.minimum(ratio * advantages[rows], clipped * advantages[rows]).mean()
                error = nn.functional.mse_loss(self._value(seen, future), returns[rows])
                self._optimiser.zero_grad()
                (0.5 * error - gain).backward()
                nn.utils.clip_grad_norm_(self.policy.parameters(), settings.max_grad_norm)
                nn.utils.clip_grad_norm_(self._critic.parameters(), settings.max_grad_norm)
                self._optimiser.step()
