"""LLMServeEnv: the reinforcement-learning environment for LLM inference serving."""
