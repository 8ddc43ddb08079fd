"""The module paths that OpenEnv and the documented commands name; the server itself is `llmserve_env.server`."""
