"""The environment as a service: OpenEnv's routes and WebSocket, durable HTTP sessions, and a page to look at."""
