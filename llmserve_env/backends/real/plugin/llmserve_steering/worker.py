"""vLLM's worker, telling the device's time from the host's: `--worker-cls llmserve_steering.worker.TimedWorker`.

On a GPU, kernels run after the calls that launch them: the device's time lies between two events. On a CPU the call of
the model is the device's time, and everything around it is the host's. The times travel with the output to the
scheduler, which may live in another process; `time.monotonic` is one clock for all processes of a machine.
"""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

from .control import TIMES_ATTRIBUTE

# vLLM is the process this runs in, not a package we depend on.
ON_GPU = bool(import_module("torch").cuda.is_available())
_HOME, _NAME = ("gpu_worker", "Worker") if ON_GPU else ("cpu_worker", "CPUWorker")
Worker: Any = getattr(import_module(f"vllm.v1.worker.{_HOME}"), _NAME)


class TimedWorker(Worker):  # type: ignore[misc]
    """The stock worker, which also times its iterations."""

    _launched_at_s = 0.0
    _forward_s = 0.0
    _events: tuple[Any, ...] = ()

    def init_device(self) -> None:
        """Make the model runner; on a CPU its forward pass is timed."""
        super().init_device()
        if ON_GPU:
            return
        forward = self.model_runner._model_forward

        def timed(*args: Any, **options: Any) -> Any:
            began_s = time.monotonic()
            result = forward(*args, **options)
            self._forward_s += time.monotonic() - began_s
            return result

        self.model_runner._model_forward = timed

    def execute_model(self, scheduler_output: Any) -> Any:
        """Launch a forward pass."""
        self._forward_s, self._events = 0.0, _mark()
        result = super().execute_model(scheduler_output)
        self._launched_at_s = time.monotonic()
        return result

    def sample_tokens(self, grammar_output: Any) -> Any:
        """Sample, and send the times along with the tokens."""
        output = super().sample_tokens(grammar_output)
        self._events += _mark()
        device_ms = 1e3 * self._forward_s
        if ON_GPU:
            first, last = self._events
            last.synchronize()
            device_ms = first.elapsed_time(last)
        times = {"launched": self._launched_at_s, "device_ms": device_ms, "blocks": not ON_GPU}
        setattr(output, TIMES_ATTRIBUTE, times)
        return output


def _mark() -> tuple[Any, ...]:
    """An event in the GPU's stream; nothing without a GPU."""
    if not ON_GPU:
        return ()
    event = import_module("torch").cuda.Event(enable_timing=True)
    event.record()
    return (event,)
