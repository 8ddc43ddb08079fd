"""Agents by where they are: `file.py:Class`, `package.module:Class`, `onnx:FILE`, `safetensors:FOLDER`, `http://HOST`.

Python code is run in this process, as its author wrote it; nothing is unpickled.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import httpx

from llmserve_env.agents.agent import Agent
from llmserve_env.agents.own.service import TIMEOUT_S, HttpPolicy
from llmserve_env.agents.own.simple import FunctionAgent, SimpleAgents
from llmserve_env.agents.own.vectorised import vectorised
from llmserve_env.agents.registry import AGENT_NAMES, current_name, make_agent
from llmserve_env.errors import ConfigError
from llmserve_env.own_code import own_code

FORMS = "file.py:Class, package.module:Class, onnx:policy.onnx, safetensors:FOLDER, http://host:port"
WITH_WEIGHTS = ("ppo", "ppo_generalist")
"""Agents of the package that can be given a folder of weights."""
_URLS = ("http://", "https://")


def load_agent(spec: str, **options: Any) -> Agent:
    """An agent by its name in the package, or one of your own by where it is.

    This runs code that the specification names, so it is for commands; a server makes agents by name only.
    """
    if ":" in spec:
        return own_agent(spec, **options)
    spec = current_name(spec)
    if spec not in AGENT_NAMES:
        raise ConfigError(f"there is no agent {spec!r}; known: {', '.join(AGENT_NAMES)}; or your own: {FORMS}")
    if options.get("weights") is not None and spec not in WITH_WEIGHTS:
        raise ConfigError(f"{spec} takes no --weights; {' and '.join(WITH_WEIGHTS)} do, and agents of your own may")
    return make_agent(spec, **options)


def own_agent(spec: str, weights: Path | None = None) -> Agent:
    """The agent that a specification names; `weights` is passed to a Python class that takes it."""
    if spec.startswith(_URLS):
        _refuse_weights(spec, weights)
        _check_address(spec)
        return SimpleAgents(spec, partial(HttpPolicy, spec, httpx.Client(timeout=TIMEOUT_S)))
    kind, _, rest = spec.partition(":")
    if kind == "onnx":
        from llmserve_env.agents.own.onnx import OnnxAgent

        _refuse_weights(spec, weights)
        return OnnxAgent(Path(rest), spec)
    if kind == "safetensors":
        from llmserve_env.agents.ppo import OwnPolicyAgent

        _refuse_weights(spec, weights)
        return OwnPolicyAgent(Path(rest), spec)
    return _python_agent(spec, weights)


def _check_address(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_complete = parts.hostname is not None and parts.port != 0
    except ValueError:
        is_complete = False
    if not is_complete:
        raise ConfigError(f"{url} is no address; a policy service is named as in http://127.0.0.1:8001")


def _refuse_weights(spec: str, weights: Path | None) -> None:
    if weights is not None:
        raise ConfigError(f"--weights {weights} means nothing to {spec}, which names its own weights; leave it out")


def _python_agent(spec: str, weights: Path | None) -> Agent:
    place, _, name = spec.rpartition(":")
    found = getattr(_module(place, spec), name, None)
    if found is None:
        missing = f"no {name!r}" if name else "nothing without a name"
        raise ConfigError(f"{place} defines {missing}; name a class or function of it, as in {place}:MyAgent")
    options = {} if weights is None else {"weights": weights}
    if inspect.isclass(found):
        return _from_class(found, spec, options)
    if not callable(found):
        raise ConfigError(
            f"{spec} is of type {type(found).__name__}; name a class with reset() and act(), or a function"
        )
    if weights is not None:
        raise ConfigError(f"--weights {weights} means nothing to {spec}, a function; a class may take them")
    return SimpleAgents(spec, lambda: FunctionAgent(found))


def _from_class(kind: Any, spec: str, options: dict[str, Any]) -> Agent:
    missing = [method for method in ("reset", "act") if not callable(getattr(kind, method, None))]
    if missing:
        raise ConfigError(f"{spec} has no {' and no '.join(missing)}(); an agent has reset(task, seed) and act(…)")
    if options and not _takes(kind, "weights"):
        raise ConfigError(f"--weights was given, but {spec} does not take it: add __init__(self, weights)")
    if "rngs" in inspect.signature(kind.reset).parameters:
        with own_code(f"{spec}: __init__()"):
            return vectorised(spec, kind(**options))
    return SimpleAgents(spec, partial(kind, **options))


def _takes(kind: Any, option: str) -> bool:
    parameters = inspect.signature(kind).parameters
    return option in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def _module(place: str, spec: str) -> ModuleType:
    if place.endswith(".py"):
        with own_code(f"{place}: its import"):
            return _file_module(Path(place).resolve())
    if not place or place.startswith("."):
        raise ConfigError(f"{spec!r} names no file and no module; an agent of your own is one of {FORMS}")
    with own_code(f"{place}: its import"):
        return _installed_module(place, spec)


def _installed_module(place: str, spec: str) -> ModuleType:
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise
        raise ConfigError(
            f"there is no installed module {place!r}, so no agent {spec!r}; a file is named as in "
            f"{place.replace('.', '/')}.py:{spec.rpartition(':')[2]}, other agents by {FORMS}, or by a known name"
        ) from error


def _file_module(path: Path) -> ModuleType:
    """A Python file as a module, run once per process; it may import files beside it."""
    if not path.is_file():
        raise ConfigError(f"there is no file {path}")
    name = f"llmserve_own_agent_{abs(hash(str(path))):x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # Last, so that no file there takes the place of an installed package.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
