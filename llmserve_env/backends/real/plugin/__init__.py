"""What runs inside vLLM: this folder goes on its path, because none of our dependencies need be installed there."""
