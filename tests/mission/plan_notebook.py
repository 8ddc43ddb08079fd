"""The notebook of the plan, cell by cell, in the plan's own words: plain HTTP, its field names and its import path.

`URL` and `STEPS` are set by the test; a reader sets URL to a running server and STEPS to 50_000.
"""

CELLS = {
    "install": """
# pip install ".[train]"
import gymnasium as gym
import numpy as np
import requests
""",
    "connect": """
health = requests.get(f"{URL}/health").json()
assert health["status"] == "healthy"
print(health["active_sessions"], health["uptime_seconds"])
""",
    "tasks": """
for task in requests.get(f"{URL}/tasks").json()["tasks"]:
    print(task["number"], task["name"], task["difficulty"], task["active_actions"])
""",
    "baseline": """
baseline = requests.get(f"{URL}/baseline").json()
for task_id, score in baseline["scores"].items():
    print(task_id, round(score, 3), baseline["expected_range"][task_id])
""",
    "a manual episode": """
reset = requests.post(f"{URL}/reset", json={"task_id": 1, "seed": 42, "config": {"alpha": 0.4, "beta": 0.25}}).json()
session_id, episode_log = reset["session_id"], []
for t in range(reset["episode_length"]):
    action = {"batch_size": 32, "kv_budget": 1.0, "spec_length": 0, "quant_tier": 0, "prefill_disagg": False}
    step = requests.post(f"{URL}/step", json={"session_id": session_id, "action": action}).json()
    episode_log.append(step)
assert step["done"] and step["info"]["timestep"] == 200
""",
    "grade": """
grade = requests.post(f"{URL}/grader", json={"task_id": 1, "episode_log": episode_log}).json()
print(grade["score"], grade["breakdown"], grade["feedback"])
print(grade["plan"]["score"], grade["plan"]["breakdown"], grade["plan"]["feedback"])
""",
    "ten smart steps": """
from inferencegym.models import MetricsSnapshot, QuantTier, ServeAction, ServeObservation, WorkloadState

reset = requests.post(f"{URL}/reset", json={"task_id": 3}).json()
action = ServeAction(batch_size=64, kv_budget=0.8, quant_tier=QuantTier.FP16)
for t in range(10):
    body = {"session_id": reset["session_id"], "action": action.model_dump()}
    step = requests.post(f"{URL}/step", json=body).json()
    observation = ServeObservation(**step["observation"])
    metrics = MetricsSnapshot(**step["info"]["metrics"])
    workload = WorkloadState(**step["info"]["workload"])
    is_busy = workload.is_burst or observation.queue_depth > 20
    action = ServeAction(batch_size=128 if is_busy else 64, kv_budget=0.9 if is_busy else 0.6)
    print(t, workload.phase, workload.prompt_len_bucket, metrics.tps, metrics.ttft_p50_ms, round(step["reward"], 3))
state = requests.get(f"{URL}/state", params={"session_id": reset["session_id"]}).json()
print(state["step_count"], state["cumulative_reward"], state["workload_phase"])
""",
    "a Gym wrapper": """
class InferenceGymEnv(gym.Env):
    observation_space = gym.spaces.Box(-np.inf, np.inf, (5,), np.float32)
    action_space = gym.spaces.MultiDiscrete([5, 5])
    batches, budgets = (8, 32, 64, 128, 256), (0.1, 0.25, 0.5, 0.75, 1.0)

    def __init__(self, task_id=1):
        self.task_id, self.http = task_id, requests.Session()

    def _vector(self, o):
        seen = (o["queue_depth"], o["request_arrival_rate"], o["kv_cache_occupancy"], o["p50_ttft_ms"], o["p50_itl_ms"])
        return np.log1p(np.array(seen, np.float32))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        asked = {"task_id": self.task_id, "seed": int(self.np_random.integers(2**31))}
        answer = self.http.post(f"{URL}/reset", json=asked).json()
        self.session_id = answer["session_id"]
        return self._vector(answer["observation"]), {}

    def step(self, action):
        chosen = {"batch_size": self.batches[action[0]], "kv_budget": self.budgets[action[1]]}
        answer = self.http.post(f"{URL}/step", json={"session_id": self.session_id, "action": chosen}).json()
        return self._vector(answer["observation"]), answer["reward"], False, answer["done"], answer["info"]


env = InferenceGymEnv()
observation, info = env.reset(seed=0)
observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
""",
    "train PPO": """
from stable_baselines3 import PPO
from stable_baselines3.common.monitor import Monitor

monitored = Monitor(env)
model = PPO("MlpPolicy", monitored, n_steps=min(1000, STEPS), batch_size=100, seed=0, device="cpu")
model.learn(total_timesteps=STEPS)
""",
    "the reward curve against the baseline": """
import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

env.reset(seed=1)
fixed = sum(env.step([1, 4])[1] for _ in range(200))
rewards = monitored.get_episode_rewards()
plt.plot(rewards, label="PPO")
plt.axhline(fixed, linestyle="--", label="fixed baseline")
plt.xlabel("episode")
plt.ylabel("return")
plt.legend()
curve = plt.gca().lines
""",
}
