"""`uvicorn server.app:app` and `python -m server.app`: the application of `llmserve_env.server`."""

from llmserve_env.server.app import app, main

__all__ = ["app", "main"]

if __name__ == "__main__":
    main()
