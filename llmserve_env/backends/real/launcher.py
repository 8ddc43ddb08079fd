"""Starting a vLLM server that we can steer, and stopping it with everything it started."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from llmserve_env.backends.real import plugin
from llmserve_env.backends.real.plugin.llmserve_steering.control import FOLDER_VARIABLE, STATUS, WANTED
from llmserve_env.backends.real.settings import RealSettings
from llmserve_env.errors import ProviderError

SCHEDULER = "llmserve_steering.scheduler.SteeredScheduler"
ASYNC_SCHEDULER = "llmserve_steering.scheduler.SteeredAsyncScheduler"
WORKER = "llmserve_steering.worker.TimedWorker"
PLUGIN_FOLDER = Path(str(plugin.__file__)).parent
POLL_S, PROBE_TIMEOUT_S = 0.25, 5.0
STOP_TIMEOUT_S = 20.0
LOG_TAIL = 2_000
CPU_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """Options of a server; knobs at run time stay within its maxima."""

    python: Path
    """Interpreter of the environment vLLM is installed in."""
    model: Path
    folder: Path
    """For the control files and the log."""
    port: int = 0
    served_name: str = "tiny"
    max_batch_cap: int = 64
    token_budget: int = 2_048
    max_model_len: int = 4_096
    block_tokens: int = 32
    num_blocks: int | None = 512
    speculation_depth: int = 0
    """Longest n-gram draft; 0 starts the server without speculation."""
    async_scheduling: bool = False
    """Schedule an iteration while the one before runs, as vLLM does on GPUs."""
    dtype: str = "float32"
    start_timeout_s: float = 300.0
    extra: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: dict(CPU_ENVIRONMENT))

    def command(self, port: int) -> list[str]:
        """The server's command line."""
        # `vllm serve` looks for a distribution of that name, which the CPU build is not.
        command = [str(self.python), "-m", "vllm.entrypoints.openai.api_server"]
        options: dict[str, object] = {
            "--model": self.model,
            "--served-model-name": self.served_name,
            "--host": "127.0.0.1",
            "--port": port,
            "--dtype": self.dtype,
            "--block-size": self.block_tokens,
            "--max-num-seqs": self.max_batch_cap,
            "--max-num-batched-tokens": self.token_budget,
            "--max-model-len": self.max_model_len,
            "--scheduling-policy": "priority",
            "--scheduler-cls": ASYNC_SCHEDULER if self.async_scheduling else SCHEDULER,
            # Random weights would fill an answer with spaces.
            "--structured-outputs-config": json.dumps({"backend": "xgrammar", "disable_any_whitespace": True}),
        }
        if not self.async_scheduling:
            # The timed worker waits for the GPU, which would defeat asynchronous scheduling.
            options["--worker-cls"] = WORKER
        if self.num_blocks is not None:
            options["--num-gpu-blocks-override"] = self.num_blocks
        if self.speculation_depth:
            options["--speculative-config"] = json.dumps(
                {"method": "ngram", "num_speculative_tokens": self.speculation_depth, "prompt_lookup_max": 4}
            )
        flags = ["--enforce-eager", "--no-enable-prefix-caching"]
        return [*command, *(str(part) for pair in options.items() for part in pair), *flags, *self.extra]


class VllmServer:
    """A vLLM server that this process starts; used as a context manager, it stops at the end of the block."""

    def __init__(self, options: LaunchOptions) -> None:
        self.options = options
        self.port = options.port or _free_port()
        self.base_url = f"http://127.0.0.1:{self.port}/v1"
        self.started_in_s = 0.0
        """Seconds that the last start took, which is the cost of a knob that needs a restart."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log_path(self) -> Path:
        return self.options.folder / "vllm.log"

    def settings(self, **overrides: object) -> RealSettings:
        """Settings of real mode for this server."""
        found = {"provider": "vllm", "model": self.options.served_name, "base_url": self.base_url}
        return RealSettings.model_validate({**found, "control_dir": self.options.folder, **overrides})

    def start(self) -> None:
        """Start, and wait until it answers; ProviderError with the end of its log if it does not."""
        folder = self.options.folder
        folder.mkdir(parents=True, exist_ok=True)
        for name in (STATUS, WANTED):
            (folder / name).unlink(missing_ok=True)
        began_s = time.monotonic()
        environment = {
            **os.environ,
            **self.options.environment,
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            FOLDER_VARIABLE: str(folder),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(PLUGIN_FOLDER), os.environ.get("PYTHONPATH", "")])),
        }
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                self.options.command(self.port),
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        try:
            self._wait(began_s + self.options.start_timeout_s)
        except BaseException:
            self.stop()
            raise
        self.started_in_s = time.monotonic() - began_s

    def _wait(self, deadline_s: float) -> None:
        assert self._process is not None
        while time.monotonic() < deadline_s:
            if self._process.poll() is not None:
                raise ProviderError(f"vLLM ended with status {self._process.returncode}: {self._log_tail()}")
            with suppress(httpx.HTTPError):
                if httpx.get(f"{self.base_url}/models", timeout=PROBE_TIMEOUT_S).is_success:
                    return
            time.sleep(POLL_S)
        raise ProviderError(f"vLLM did not answer within {self.options.start_timeout_s:g} s: {self._log_tail()}")

    def _log_tail(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL:]

    def stop(self) -> None:
        """End the server and its workers."""
        if self._process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            # The server leads its own process group, so no other process is signalled.
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                continue
            except ProcessLookupError:
                break
        self._process = None

    def wait(self) -> None:
        """Wait until an interrupt; a server that ends by itself is an error."""
        assert self._process is not None
        status = self._process.wait()
        raise ProviderError(f"vLLM ended with status {status}: {self._log_tail()}")

    def restart(self, options: LaunchOptions) -> float:
        """Stop and start with other options; returns the seconds in which nothing was served."""
        began_s = time.monotonic()
        self.stop()
        self.options = options
        self.start()
        return time.monotonic() - began_s

    def __enter__(self) -> VllmServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
