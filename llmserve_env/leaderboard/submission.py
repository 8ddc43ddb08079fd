"""A submission: one JSON file with the actions and rewards of every official episode, and a card of the agent.

Actions are kept as runs, `[steps, values of the task's action knobs]`, and rewards with six decimals, so a file is
small. The score is not taken from the file: `verify` replays the actions. Many changes of an action alter no reward (a
larger batch cap that nothing fills, say), so each episode also has a digest of what happened in it.
"""

from __future__ import annotations

import hashlib
import json
from datetime import date as day
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from llmserve_env.env.episode import COUNTS, ActionLog, PlayedEpisode
from llmserve_env.errors import InvalidLogError
from llmserve_env.tasks.digest import task_digest
from llmserve_env.version import PACKAGE_VERSION

FORMAT: Literal[2] = 2
REWARD_DECIMALS = 6
MAX_TEXT = 500
MAX_FILE_BYTES = 20_000_000
Text = Annotated[str, Field(max_length=MAX_TEXT)]
PlainText = Annotated[str, Field(max_length=MAX_TEXT, pattern=r"^[^|<>`\[\]\x00-\x1f\x7f]*$")]
"""Text that a table cell can show as it is."""
PrintableText = Annotated[str, Field(max_length=MAX_TEXT, pattern=r"^[^\x00-\x1f\x7f]*$")]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
CountName = Annotated[str, Field(pattern=r"^[a-z_]{1,40}$")]
Run = tuple[Annotated[int, Field(ge=1)], tuple[Finite, ...]]
"""How many steps in a row, and the values of the task's `action_knobs`."""


def _day(text: str) -> str:
    day.fromisoformat(text)
    return text


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AgentCard(_Part):
    """Who plays, in the submitter's words. Only the actions are verified."""

    name: Annotated[str, Field(pattern=r"^[\w][\w .:+/-]{0,79}$")]
    description: PlainText = ""
    author: PlainText = ""
    url: Annotated[str, Field(pattern=r"^(https?://[A-Za-z0-9._~:/?#@!$&*+,;=%-]{1,300})?$")] = ""
    """Where the agent can be read about or found; no character of it ends a link or a table's cell."""
    played_as: PrintableText
    """What `--agent` named."""
    sees_the_future: bool = False
    """Whether it knows the traffic to come: then it is listed as a ceiling, without a rank."""


class SubmittedEpisode(_Part):
    """One episode: the seed and actions that determine it, and the rewards that it claims."""

    seed: Annotated[int, Field(ge=0, le=2**32 - 1)]
    actions: tuple[Run, ...]
    rewards: tuple[Finite, ...]
    score: Annotated[float, Field(ge=0.0, le=1.0)]
    record: Digest
    """Digest of what was played and what came of it; see `record_digest`."""


class SubmittedTask(_Part):
    """The episodes of one task."""

    id: Text
    version: Annotated[int, Field(ge=1)]
    digest: Digest
    episodes: tuple[SubmittedEpisode, ...] = Field(min_length=1)


class Submission(_Part):
    """One agent on one suite."""

    format: Literal[2] = FORMAT
    agent: AgentCard
    suite: Text
    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$"), AfterValidator(_day)]
    environment_version: Text
    package_version: Text
    tasks: tuple[SubmittedTask, ...] = Field(min_length=1)
    usage: dict[CountName, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    """What a language model was asked and used, where one played."""
    sha256: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""
    """Hash of everything else in the file."""

    @model_validator(mode="after")
    def _tasks_differ(self) -> Submission:
        names = [task.id for task in self.tasks]
        if len(set(names)) < len(names):
            raise ValueError(f"every task may appear once; got {', '.join(names)}")
        return self

    def hashed(self) -> Submission:
        """The same submission with its hash."""
        return self.model_copy(update={"sha256": self.content_hash()})

    def content_hash(self) -> str:
        """SHA-256 of everything but the hash, however the file is laid out."""
        text = json.dumps(self.model_dump(mode="json", exclude={"sha256"}), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def record_digest(episode: PlayedEpisode, package_version: str) -> str:
    """SHA-256 of the versions, the seed and, for every window, the knobs requested, those in force and the counts.

    The counts are those that observations show, so the digest does not change when the engine counts something more.
    """
    log, trajectory, n = episode.log(), episode.trajectory, episode.step_count
    in_force = episode.task.action_from_knobs(trajectory.knobs[:n]).tolist()
    counts = {name: trajectory.window[name][:n].tolist() for name in COUNTS}
    causes = [package_version, log.environment_version, task_digest(episode.task), log.seed, log.actions]
    return hashlib.sha256(json.dumps([*causes, in_force, counts]).encode()).hexdigest()


def submitted(episode: PlayedEpisode, score: float) -> SubmittedEpisode:
    """An episode that was played to its end, as a submission keeps it."""
    log = episode.log()
    return SubmittedEpisode(
        seed=log.seed,
        actions=tuple((len(list(run)), values) for values, run in groupby(log.actions)),
        rewards=tuple(round(reward, REWARD_DECIMALS) for reward in log.rewards),
        score=round(score, REWARD_DECIMALS),
        record=record_digest(episode, PACKAGE_VERSION),
    )


def log_of(episode: SubmittedEpisode, task: SubmittedTask, environment_version: str) -> ActionLog:
    """The log to replay. Its rewards are left out, because they are rounded here and compared by `verify`."""
    actions = tuple(values for count, values in episode.actions for _ in range(count))
    return ActionLog(task.id, task.version, environment_version, episode.seed, actions)


def write_submission(submission: Submission, path: Path) -> None:
    """Write the file, an episode per line."""
    data = submission.hashed().model_dump(mode="json")
    tasks = data.pop("tasks")
    head = json.dumps(data, indent=1, ensure_ascii=False)[:-2]
    body = ",\n".join(_task_text(task) for task in tasks)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{head},\n "tasks": [\n{body}\n ]\n}}\n', encoding="utf-8")


def _task_text(task: dict[str, Any]) -> str:
    facts = ", ".join(f'"{name}": {json.dumps(task[name])}' for name in ("id", "version", "digest"))
    rows = ",\n".join("   " + json.dumps(_short(episode), separators=(",", ":")) for episode in task["episodes"])
    return f'  {{{facts}, "episodes": [\n{rows}\n  ]}}'


def _short(value: Any) -> Any:
    """Whole numbers without a fraction, which makes files smaller and means the same."""
    if isinstance(value, dict):
        return {name: _short(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_short(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def read_submission(path: Path) -> Submission:
    """The submission in a file; InvalidLogError says what is wrong with one that is none."""
    if not path.is_file():
        raise InvalidLogError(f"there is no file {path}")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise InvalidLogError(f"{path} has more than {MAX_FILE_BYTES // 10**6} MB; a submission is far smaller")
    try:
        return Submission.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "file"
        again = f": files of this version have format {FORMAT}, submit again" if where == "format" else ""
        raise InvalidLogError(f"{path.name} is not a submission: {where}: {first['msg']}{again}") from error
