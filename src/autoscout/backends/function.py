"""Backend `function`: tunes a Python function, named in a campaign or handed over from Python."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import math
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from autoscout.common.fields import Block, Listed, natural_direction, read_blocks, read_fields, read_objective, refuse_if
from autoscout.common.outcome import failure
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault, Infeasible
from autoscout.core.launch import Completed, Launch
from autoscout.core.protocols import Backend
from autoscout.core.task import Direction, Task
from autoscout.core.trial import Fidelity, Measurement, Status
from autoscout.space import Space, read_space

Function = Callable[[Config], float | Mapping[str, float]]
"""Takes a configuration, gives the objective's value or several metrics by name."""

LOG_TAIL = 6000  # characters of a traceback that are kept
_loading: ContextVar[str] = ContextVar("_loading", default="")


class FunctionWorkload(Block):
    """The block `workload`: which function, and what is known of its answers."""

    function: str | None = None  # package.module:name or file.py:name; from Python the function itself is at hand
    metrics: Listed = Field(default_factory=list)  # names of what it returns, the first is improved unless `goal` says otherwise
    facts: dict[str, Any] = Field(default_factory=dict)  # tell jobs apart that are otherwise alike: {rows: 4096}
    deterministic: bool = True  # false: the same configuration gives other values next time, so that the best are measured again
    simulated: bool = False  # true: what it returns does not come from a real system
    space: dict[str, Any] | None = None


class FunctionBackend(Backend):
    """A Python function of a configuration, returning a number or a dict of metrics.

    It raises `Infeasible` for a configuration that cannot work; any other exception is a crash of that configuration, and the study
    continues. In a campaign `workload.function` names it (`package.module:name` or `file.py:name`), `workload.metrics` what it returns
    when that is more than one number; the knobs come from the campaign's `space`.

    Args:
        space: The knobs.
        function: The function itself, from Python.
    """

    takes_space: ClassVar[bool] = True
    executor: ClassVar[str] = "inline"

    def __init__(self, space: Space | None = None, function: Function | None = None) -> None:
        self._space, self._function = space, function

    @classmethod
    def example(cls) -> Mapping[str, object]:
        knobs = {"x": {"range": [0, 9], "help": "best at 3"}, "y": {"range": [0, 9], "help": "best at 5"}}
        return {"workload": {"function": "autoscout.backends.function:paraboloid"}, "space": {"knobs": knobs}}

    def task(self, given: Mapping[str, object]) -> Task:
        blocks = read_blocks(given, also=("space",))
        data = {**blocks.workload, **({"space": given["space"]} if given.get("space") is not None else {})}
        if self._function is not None:
            data.setdefault("function", reference_to(self._function))
        workload, faults = read_fields(FunctionWorkload, data, "workload")
        workload = workload or FunctionWorkload()
        if not any(fault.field == "function" for fault in faults) and ":" not in (workload.function or ""):
            fix = "Write package.module:name, or file.py:name"
            faults.append(Fault(where="workload", field="function", value=workload.function or "", rule="must name a function", fix=fix))
        if self._space is None and workload.space is None:
            rule, fix = "a function has the knobs that the campaign declares", "Declare them under `space`"
            faults.append(Fault(where="space", rule=rule, fix=fix))
        names = list(map(str, workload.metrics)) or ["value"]
        objective, wrong = read_objective(blocks.objective, metrics=names, default=names[0], direction=_smaller_unless_known)
        refuse_if([*blocks.faults, *faults, *wrong])
        described = workload.model_dump(exclude_defaults=True)
        if self._function is None:
            described["function"] = _absolute(str(workload.function))
        return Task(system="function", workload=described, hardware=blocks.hardware, software=blocks.software, objective=objective)

    def space(self, task: Task) -> Space:
        return self._space if self._space is not None else read_space(task.workload["space"], task.facts)

    def check(self, task: Task) -> None:
        if self._function is None:
            load_function(str(task.workload["function"]))

    def fidelity(self, task: Task) -> Fidelity:
        return Fidelity.SIMULATED if task.workload.get("simulated") else Fidelity.MEASURED

    def deterministic(self, task: Task) -> bool:
        return bool(task.workload.get("deterministic", True))

    def render(self, config: Config, task: Task, seed: int) -> Launch:  # noqa: ARG002 - a function draws its own inputs
        target = self._function or str(task.workload["function"])
        return Launch(call=Call(function=target, config=config, metric=task.objective.metric))

    def parse(self, completed: Completed, task: Task) -> Measurement:  # noqa: ARG002
        if isinstance(completed.value, Measurement):
            return completed.value
        code = completed.returncode
        reason = f"the function ended its process (signal {-code})" if code is not None and code < 0 else "the function did not return"
        return executor_failure(completed, reason)

    def export(self, config: Config, task: Task) -> Mapping[str, str]:
        settings = json.dumps(config.to_json(), indent=2) + "\n"
        named = str(task.workload["function"])
        program = f"from autoscout.backends.function import call_with\n\nprint(call_with({named!r}, 'settings.json'))\n"
        script = '#!/bin/sh\n# Calls the function with these settings and prints what it returns.\ncd "$(dirname "$0")" || exit 2\n'
        return {"settings.json": settings, "run.py": program, "run.sh": f"{script}exec ${{PYTHON:-python3}} run.py\n"}


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call, made into a measurement where the function runs, so that its exceptions need not pickle."""

    function: Function | str  # itself, or its name
    config: Config
    metric: str

    def __call__(self) -> Measurement:
        try:
            function = load_function(self.function) if isinstance(self.function, str) else self.function
            value = function(self.config)
        except Infeasible as refusal:
            return Measurement(status=refusal.status, reason=refusal.reason or "infeasible")
        except MemoryError:
            return Measurement(status=Status.OOM_RUN, reason="out of memory", log_tail=traceback.format_exc()[-LOG_TAIL:])
        except Exception as error:
            return Measurement(status=Status.CRASHED, reason=_one_line(error), log_tail=traceback.format_exc()[-LOG_TAIL:])
        named = value if isinstance(value, Mapping) else {self.metric: value}
        metrics: dict[str, float] = {}
        for name, item in named.items():
            number = _number(item)
            if number is None:
                return Measurement(status=Status.WRONG_OUTPUT, reason=f"returned {_repr(item)} for {name}, which is not a finite number")
            metrics[str(name)] = number
        return Measurement(status=Status.OK, metrics=metrics)


def executor_failure(completed: Completed, reason: str) -> Measurement:
    """What became of a call that gave no measurement."""
    ending = failure(completed)
    return ending if ending is not None and ending.status is not Status.CRASHED else Measurement(status=Status.CRASHED, reason=reason)


def reference_to(function: Function) -> str:
    """The name by which `load_function` finds a function again, if it can be found at all."""
    module = getattr(function, "__module__", None) or type(function).__module__
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    script = getattr(sys.modules.get("__main__"), "__file__", None) if module == "__main__" else None
    return f"{Path(script).resolve() if script else module}:{name}"


def load_function(named: str) -> Function:
    """The function of a reference: `package.module:name`, or `file.py:name`.

    Raises:
        ConfigError: there is no such module or function, or it cannot be imported.
    """
    source, _, name = named.rpartition(":")
    target: Any = None
    try:
        with _while_loading(named):
            target = _script(Path(source)) if source.endswith(".py") else importlib.import_module(source)
        for part in name.split("."):
            target = getattr(target, part)
    except ConfigError:
        raise
    except Exception as error:
        rule = f"cannot be loaded: {_one_line(error)}"
        fix = "Name an importable function at the top level of a module or file; a study begun by a script is resumed by that script"
        raise ConfigError(Fault(where="function", field="workload.function", value=named, rule=rule, fix=fix)) from error
    if not callable(target):
        raise ConfigError(Fault(where="function", field="workload.function", value=named, rule="is not a function"))
    loaded: Function = target
    return loaded


def refuse_while_loading(what: str) -> None:
    """A script that is imported for its function must not start its own study.

    Raises:
        ConfigError: it does.
    """
    if named := _loading.get():
        rule = f"importing the script calls {what}"
        fix = "Put that call under `if __name__ == '__main__':`"
        raise ConfigError(Fault(where="function", field="workload.function", value=named, rule=rule, fix=fix))


def call_with(named: str, settings: str) -> float | Mapping[str, float]:
    """What a function returns with the settings of a JSON file; used by the hand-over."""
    return load_function(named)(Config(json.loads(Path(settings).read_text(encoding="utf-8"))))


def paraboloid(config: Config) -> float:
    """A function to try things with: smallest at x = 3, y = 5."""
    return float((int(str(config["x"])) - 3) ** 2 + (int(str(config["y"])) - 5) ** 2 + 1)


@contextmanager
def _while_loading(named: str) -> Iterator[None]:
    token = _loading.set(named)
    try:
        yield
    finally:
        _loading.reset(token)


def _script(path: Path) -> Any:
    name = f"autoscout_function_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))  # as Python does for a script, so that it finds its neighbours
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.pop(0)
    return module


def _smaller_unless_known(metric: str) -> Direction:
    return natural_direction(metric) or Direction.MINIMIZE


def _absolute(named: str) -> str:
    source, _, name = named.rpartition(":")
    return f"{Path(source).resolve()}:{name}" if source.endswith(".py") else named


def _number(item: object) -> float | None:
    try:
        number = float(item)  # type: ignore[arg-type]  # numpy and torch scalars too; everything else is refused below
    except Exception:  # a number that is too large, or whatever an object of the user's raises
        return None
    return number if math.isfinite(number) and not isinstance(item, str) else None


def _repr(item: object) -> str:
    try:
        return repr(item)[:200]
    except Exception:  # as Python's own does for whole numbers of thousands of digits
        return f"something of type {type(item).__name__}"


def _one_line(error: Exception) -> str:
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


__all__ = ["FunctionBackend"]
