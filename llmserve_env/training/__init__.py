"""Training: PPO on many episodes side by side. `ppo.train` is the loop, `ppo.yaml` its tuned values."""
