"""A vLLM in this process, with our scheduler: requests and tokens without HTTP, knobs through the control folder.

Only the control folder, numpy and vLLM itself are needed, so that an experiment can run on a machine that has little
else. vLLM's engine core runs in a separate process, as always.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

from llmserve_env.backends.real import plugin
from llmserve_env.backends.real.limiter import Limiter
from llmserve_env.backends.real.plugin.llmserve_steering.control import FOLDER_VARIABLE, STATUS, WANTED
from llmserve_env.backends.real.provider import Call, Gauges, Piece, StreamError
from llmserve_env.backends.real.steering import Steering, prompt_ids, request_name

ASYNC_SCHEDULER = "llmserve_steering.scheduler.SteeredAsyncScheduler"
PLUGIN_FOLDER = Path(str(plugin.__file__)).parent
START_TIMEOUT_S = 600.0
HOST = "vllm"
"""The engine's package, which is not a dependency of this one."""


class Handover:
    """Hands what arrives in the engine's loop over to a caller's, which is woken once for all of an iteration.

    Waking it for every token would cost more CPU time than the engine's own front end.
    """

    def __init__(self, caller: asyncio.AbstractEventLoop) -> None:
        self.caller = caller
        self._arrived: deque[tuple[asyncio.Queue[Any], Any]] = deque()
        self._is_due = False

    def put(self, queue: asyncio.Queue[Any], item: Any) -> None:
        """Called in the engine's loop. An item for a caller that has gone away is dropped."""
        self._arrived.append((queue, item))
        if not self._is_due and not self.caller.is_closed():
            self._is_due = True
            with contextlib.suppress(RuntimeError):
                self.caller.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        # Cleared first: what is put from now on is delivered by this call or wakes the loop again.
        self._is_due = False
        while self._arrived:
            queue, item = self._arrived.popleft()
            queue.put_nowait(item)


class InProcessEngine:
    """An `AsyncLLM` with its own event loop and thread, which serves one episode after the other."""

    def __init__(self, folder: Path, *, scheduler: str = ASYNC_SCHEDULER, **arguments: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (STATUS, WANTED):
            (folder / name).unlink(missing_ok=True)
        self.folder = folder
        # The engine core is a child that inherits these: by `fork` the path of modules, by `spawn` the environment.
        if str(PLUGIN_FOLDER) not in sys.path:
            sys.path.insert(0, str(PLUGIN_FOLDER))
        os.environ[FOLDER_VARIABLE] = str(folder)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(PLUGIN_FOLDER), os.environ.get("PYTHONPATH", "")]))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="llmserve-vllm", daemon=True)
        self._thread.start()
        sampling = import_module(f"{HOST}.sampling_params")
        self._sampling, self._delta = sampling.SamplingParams, sampling.RequestOutputKind.DELTA
        self._handover: Handover | None = None
        self._engine: Any = self.do(self._start(scheduler, arguments), START_TIMEOUT_S)

    async def _start(self, scheduler: str, arguments: dict[str, Any]) -> Any:
        given = import_module(f"{HOST}.engine.arg_utils").AsyncEngineArgs(
            skip_tokenizer_init=True, scheduling_policy="priority", scheduler_cls=scheduler, **arguments
        )
        return import_module(f"{HOST}.v1.engine.async_llm").AsyncLLM.from_engine_args(given)

    def do(self, work: Any, timeout_s: float) -> Any:
        """Run a coroutine in the engine's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    def forget(self) -> None:
        """Empty the prefix cache, so that one episode does not warm up the next."""
        self.do(self._engine.reset_prefix_cache(), START_TIMEOUT_S)

    async def tokens(
        self, name: str, prompt: list[int], output_tokens: int, priority: int = 0, salt: str = ""
    ) -> AsyncIterator[int]:
        """Number of tokens each time some arrive; prompts share prefixes where their salt is the same.

        Runs in the caller's loop.
        """
        caller, arrived = asyncio.get_running_loop(), asyncio.Queue[Any]()
        if self._handover is None or self._handover.caller is not caller:
            self._handover = Handover(caller)
        put = partial(self._handover.put, arrived)
        given = {"prompt_token_ids": prompt, **({"cache_salt": salt} if salt else {})}
        task = asyncio.run_coroutine_threadsafe(self._generate(name, given, output_tokens, priority, put), self._loop)
        try:
            while (found := await arrived.get()) is not None:
                if isinstance(found, BaseException):
                    raise StreamError(f"the engine failed: {type(found).__name__}") from found
                yield found
        finally:
            task.cancel()

    async def _generate(
        self, name: str, prompt: dict[str, Any], output_tokens: int, priority: int, put: Callable[[Any], None]
    ) -> None:
        options = self._sampling(
            max_tokens=output_tokens, ignore_eos=True, temperature=0.0, detokenize=False, output_kind=self._delta
        )
        last: Any = None
        try:
            async for output in self._engine.generate(prompt, options, name, priority=priority):
                put(len(output.outputs[0].token_ids))
        except Exception as error:
            # The engine may raise anything, and nothing in this loop awaits it, so the error is handed to the caller.
            last = error
        finally:
            put(last)

    def close(self) -> None:
        """Stop the engine and its loop."""
        self._loop.call_soon_threadsafe(self._engine.shutdown)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_TIMEOUT_S)


class InProcessProvider(Steering):
    """One episode on an engine in this process."""

    name = "vllm"
    is_metered = False
    limiter: Limiter | None = None
    """The engine holds the batch cap itself."""

    def __init__(self, engine: InProcessEngine, *, record_iterations: bool = True) -> None:
        super().__init__(engine.folder, record_iterations)
        self._engine = engine
        # The cache is emptied between episodes, but not while blocks are withheld. A salt keeps them apart for certain.
        self._salt = uuid4().hex

    def check(self) -> None:
        """Wait until the scheduler has reported, and empty the prefix cache."""
        ends_at_s = time.monotonic() + START_TIMEOUT_S
        while not (self._folder / STATUS).exists() and time.monotonic() < ends_at_s:
            time.sleep(0.05)
        self.note_vocabulary()
        self._engine.forget()

    def gauges(self) -> Gauges:
        status = self.status()
        in_service = status.num_blocks - status.withheld_blocks
        return Gauges(
            queue_depth=status.num_waiting,
            active_requests=status.num_running,
            kv_cache_occupancy=min(status.used_blocks / max(in_service, 1), 1.0),
            preemptions=status.preemptions,
            drafted_tokens=0,
            accepted_tokens=0,
            iterations=status.iterations,
            busy_s=status.busy_s,
            reserved_kv_fraction=in_service / status.num_blocks,
        )

    async def stream(self, call: Call) -> AsyncIterator[Piece]:
        prompt = prompt_ids(call, self._vocabulary)
        priority = call.priority if self._by_priority else 0
        used = 0
        name = request_name(call)
        async for count in self._engine.tokens(name, prompt, call.output_tokens, priority, self._salt):
            used += count
            yield Piece(count, call.prompt_tokens, used)

    async def aclose(self) -> None:
        """Do nothing: the engine also serves the next episode."""
