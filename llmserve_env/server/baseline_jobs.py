"""Baselines of a language model, as jobs: hundreds of paid calls do not fit into a request.

One job runs at a time. It makes at most the calls that it announced. It is cancelled on request, and also when nobody
has asked about it for a while, because then nobody is waiting for its result.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from llmserve_env.agents.agent import Agent, AgentView
from llmserve_env.agents.llm import LlmAgent
from llmserve_env.agents.llm_settings import LlmSettings
from llmserve_env.arrays import Array
from llmserve_env.errors import ConfigError, LLMServeError
from llmserve_env.evaluation.baseline import baseline_grade
from llmserve_env.models import GradeReport
from llmserve_env.server.background import in_background
from llmserve_env.server.errors import BusyError, NotAllowedError, UnknownJobError
from llmserve_env.server.scoring import report
from llmserve_env.server.sessions import new_session_id
from llmserve_env.server.settings import Settings
from llmserve_env.tasks.task import Task

log = logging.getLogger("llmserve.server")
LEASE_S = 60.0
"""A job that nobody has asked about for this long is cancelled."""
CHECK_INTERVAL_S = 1.0
MAX_REMEMBERED = 16
MAX_REPEATED_REFUSALS = 6
"""A busy API is asked again after about 0.5, 1, 2, 4, 8 and 16 s, or when it says."""
WAIT_STEP_S = 0.1
HOUR_S = 3600.0
HIDDEN = "***"
MAX_ERROR_CHARS = 300
Status = Literal["running", "done", "failed", "cancelled"]


class _StopError(LLMServeError):
    """The job has been cancelled."""


@dataclass(slots=True)
class BaselineJob:
    """One job and its progress."""

    tasks: tuple[Task, ...]
    seed: int
    settings: LlmSettings
    calls_planned: int
    id: str = field(default_factory=new_session_id)
    status: Status = "running"
    calls_made: int = 0
    steps_played: int = 0
    results: dict[str, GradeReport] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    is_cancelled: bool = False
    asked_at_s: float = 0.0

    @property
    def steps_planned(self) -> int:
        return sum(task.steps for task in self.tasks)

    def check(self) -> None:
        """Raise an error if the job has been cancelled."""
        if self.is_cancelled:
            raise _StopError("cancelled")

    def wait(self, seconds: float) -> None:
        """Wait for a busy API, unless the job is cancelled in the meantime."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.check()
            time.sleep(WAIT_STEP_S)


class _Metered:
    """The agent of a job: it stops when the job is cancelled, and never makes more calls than were announced."""

    name = "llm"

    def __init__(self, job: BaselineJob, agent: LlmAgent, may_call: Callable[[], bool]) -> None:
        self._job, self._agent, self._may_call = job, agent, may_call

    def reset(self, task: Task, rngs: Any) -> None:
        self._agent.reset(task, rngs)

    def act(self, view: AgentView) -> Array:
        job = self._job
        job.check()
        if view.step % job.settings.decide_every == 0:
            if job.calls_made >= job.calls_planned:
                raise ConfigError(f"all {job.calls_planned} announced calls have been made")
            if not self._may_call():
                raise BusyError("the server has made all the calls that LLMSERVE_OPENAI_CALLS_PER_HOUR allows")
            job.calls_made += 1
        knobs = self._agent.act(view)
        job.steps_played += 1
        return knobs


def _calls_of(tasks: tuple[Task, ...], decide_every: int) -> int:
    return sum(-(-task.steps // decide_every) for task in tasks)


class BaselineJobs:
    """The jobs of this process."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._is_allowed, self._calls_per_hour, self._clock = (
            settings.openai_baseline,
            settings.openai_calls_per_hour,
            clock,
        )
        self._jobs: OrderedDict[str, BaselineJob] = OrderedDict()
        self._called_at_s: deque[float] = deque()
        self._running: asyncio.Task[None] | None = None

    def start(self, tasks: tuple[Task, ...], seed: int, decide_every: int) -> BaselineJob:
        """Begin a job; it is refused if the operator does not allow any, or while another runs."""
        if not self._is_allowed:
            raise NotAllowedError(
                "a language model's baseline spends the operator's money, and this server does not allow it; the "
                "operator can set LLMSERVE_OPENAI_BASELINE=true, and `llmserve baseline --mode openai` runs it on your "
                "own machine"
            )
        if self._running is not None and not self._running.done():
            raise BusyError("another language model's baseline is running; try again when it has ended")
        # A retry would be a call that was not announced, except after 429: then the API has not done anything.
        settings = replace(
            LlmSettings.from_environment(decide_every=decide_every),
            max_retries=0,
            max_repeated_refusals=MAX_REPEATED_REFUSALS,
        )
        job = BaselineJob(tasks, seed, settings, _calls_of(tasks, decide_every), asked_at_s=self._clock())
        agent = LlmAgent(settings, job.wait)
        if job.calls_planned > self._calls_left():
            raise BusyError(
                f"this takes {job.calls_planned} calls, and {self._calls_left()} are left of the "
                f"{self._calls_per_hour} that LLMSERVE_OPENAI_CALLS_PER_HOUR allows; ask for one task or a larger "
                "decide_every, or try later"
            )
        self._jobs[job.id] = job
        while len(self._jobs) > MAX_REMEMBERED:
            self._jobs.popitem(last=False)
        self._running = asyncio.create_task(self._run(job, agent))
        return job

    def get(self, job_id: str) -> BaselineJob:
        """A job; asking about it keeps it going."""
        job = self._jobs.get(job_id)
        if job is None:
            raise UnknownJobError("there is no such job: it never existed, or it is long over; GET /baseline")
        job.asked_at_s = self._clock()
        return job

    def cancel(self, job_id: str) -> BaselineJob:
        """Stop a job after the call that is under way."""
        job = self.get(job_id)
        job.is_cancelled = True
        return job

    def look_after(self) -> None:
        """Cancel jobs that nobody asks about; called every second."""
        for job in self._jobs.values():
            if job.status == "running" and self._clock() - job.asked_at_s > LEASE_S:
                job.is_cancelled = True

    def stop(self) -> None:
        """Cancel everything, because the server is stopping."""
        for job in self._jobs.values():
            job.is_cancelled = True

    async def _run(self, job: BaselineJob, agent: LlmAgent) -> None:
        metered = _Metered(job, agent, self._may_call)
        try:
            for task in job.tasks:
                job.results[task.id] = await in_background(lambda task=task: _grade(metered, task, job.seed))  # type: ignore[misc]
            job.status = "done"
        except _StopError:
            job.status = "cancelled"
        except LLMServeError as error:
            job.status, job.error = "failed", _hidden(str(error), job.settings)[:MAX_ERROR_CHARS]
        except Exception:
            # Nobody awaits the job, so whatever goes wrong must be seen in its status and in the log.
            log.error("a language model's baseline failed\n%s", _hidden(traceback.format_exc(), job.settings))
            job.status, job.error = "failed", "internal error; the server's log has the details"
        job.usage = agent.usage.report(job.settings)

    def _calls_left(self) -> int:
        now_s = self._clock()
        while self._called_at_s and now_s - self._called_at_s[0] > HOUR_S:
            self._called_at_s.popleft()
        return self._calls_per_hour - len(self._called_at_s)

    def _may_call(self) -> bool:
        if self._calls_left() <= 0:
            return False
        self._called_at_s.append(self._clock())
        return True


def _grade(agent: Agent, task: Task, seed: int) -> GradeReport:
    return report(baseline_grade(agent, task, seed))


def _hidden(text: str, settings: LlmSettings) -> str:
    """An error without the key, which an API may repeat in its answer."""
    return text.replace(settings.api_key, HIDDEN) if settings.api_key else text
