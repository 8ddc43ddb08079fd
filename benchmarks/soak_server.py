"""The server with a faster clock: `python -m benchmarks.soak_server SCALE --port 0`, for `benchmarks.soak`.

Whatever the server counts in minutes or sweeps in intervals goes by so much faster; the settings do the rest.
"""

from __future__ import annotations

import sys

from llmserve_env.server import app, service


def main() -> None:
    """The command."""
    scale = float(sys.argv[1])
    service.TICK_INTERVAL_S /= scale
    app.main(sys.argv[2:])


if __name__ == "__main__":
    main()
