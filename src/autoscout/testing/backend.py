"""What every backend must do. Subclass `BackendSuite` in a test module and give it two fixtures:

    class TestMyBackend(BackendSuite):
        @pytest.fixture
        def backend(self):
            return MyBackend()

        @pytest.fixture
        def given(self):
            return example(MyBackend)

`example` is the task that the backend brings for this purpose.

Needs no pytest itself and starts nothing: backends are pure. That the launches really run is for a backend's own tests.
"""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.launch import Completed, Launch
from autoscout.core.protocols import Backend, SpaceLike
from autoscout.core.seeds import stream
from autoscout.core.task import Direction, Task
from autoscout.core.trial import Fidelity, Measurement, Status
from autoscout.space import Space

CONFIGS = 20
"""Random valid configurations that are rendered and exported."""

NONSENSE = (
    "", "\x00\ufffd\x1b[31m", "{", "[]", "null", "0", '"text"', '{"metrics": null}', '{"metrics": {}, "samples": {}}', "NaN",
    '{"metrics": [1], "samples": 3, "runs": {}}', '{"a": {"b": {"c": []}}}', "Segmentation fault (core dumped)", "x" * 100_000,
)  # fmt: skip
"""Texts that a broken program may print or leave in a file."""


class TaskSuite:
    """`task`: fills up, and refuses with all faults."""

    def test_is_a_backend(self, backend: Backend) -> None:
        assert isinstance(backend, Backend)

    def test_a_task_is_filled_up(self, backend: Backend, given: Mapping[str, Any]) -> None:
        task = backend.task(given)
        assert isinstance(task, Task)
        assert task.system
        assert task.objective.metric
        assert isinstance(task.objective.direction, Direction)
        assert backend.task(given) == task, "the same description gives the same task"

    def test_a_task_survives_files_and_stores(self, backend: Backend, given: Mapping[str, Any]) -> None:
        task = backend.task(given)
        text = json.dumps(task.to_json(), allow_nan=False)
        assert Task.from_json(json.loads(text)) == task
        assert backend.task(json.loads(text)) == task, "a task that was filled up is a good description of itself"

    def test_strange_parts_are_refused_together(self, backend: Backend, given: Mapping[str, Any]) -> None:
        workload = {**given.get("workload", {}), "no_such_field": 1, "nor_this_one": 2}
        error = refusal(backend, {**given, "workload": workload, "no_such_part": {}})
        message = str(error)
        assert error.exit_code == 2
        assert all(name in message for name in ("no_such_field", "nor_this_one", "no_such_part")), "all faults at once"

    def test_wrong_types_are_refused(self, backend: Backend, given: Mapping[str, Any]) -> None:
        for value in ("text", 3, ["list"]):
            refusal(backend, {**given, "workload": value})
        refusal(backend, {**given, "objective": {"metric": "no_such_metric_anywhere"}})


class SpaceSuite:
    """`space`: a valid default, and knobs that do something."""

    def test_the_default_is_valid(self, backend: Backend, given: Mapping[str, Any]) -> None:
        space = backend.space(backend.task(given))
        assert isinstance(space, SpaceLike)
        assert space.check(space.default()) == []
        assert space.default() == backend.space(backend.task(given)).default()

    def test_the_space_stays_the_same(self, backend: Backend, given: Mapping[str, Any]) -> None:
        task = backend.task(given)
        assert backend.space(task).fingerprint() == backend.space(Task.from_json(task.to_json())).fingerprint()

    def test_every_value_of_every_knob_makes_a_difference(self, backend: Backend, given: Mapping[str, Any]) -> None:
        """A knob that changes nothing wastes trials and misleads the user."""
        task = backend.task(given)
        space = backend.space(task)
        assert isinstance(space, Space)
        assert all(knob.help for knob in space.knobs.values()), "one line of help for every knob"
        for knob in space.knobs.values():
            values = [knob.values[position] for position in sorted({*range(min(6, len(knob.values))), len(knob.values) - 1})]
            here = [config for value in values if (config := _with(space, knob.name, value)) is not None]
            launches = [_content(backend.render(config, task, seed=1)) for config in here]
            assert len({json.dumps(launch, sort_keys=True) for launch in launches}) == len(here), f"{knob.name} does not reach the launch"


class LaunchSuite:
    """`render`: a pure function to plain data."""

    def test_render_is_pure(self, backend: Backend, given: Mapping[str, Any]) -> None:
        task = backend.task(given)
        for config in configs(backend, task):
            before = json.dumps(task.to_json(), sort_keys=True)
            first, second = (backend.render(config, task, seed=7) for _ in range(2))
            assert first == second, "equal arguments, equal launches"
            assert json.dumps(task.to_json(), sort_keys=True) == before, "the task is only read"
            assert pickle.loads(pickle.dumps(first)) == first, "a launch leaves the process"

    def test_a_launch_is_complete(self, backend: Backend, given: Mapping[str, Any]) -> None:
        task = backend.task(given)
        for config in configs(backend, task):
            launch = backend.render(config, task, seed=2**31 - 1)
            assert bool(launch.argv) != (launch.call is not None), "one thing to run"
            json.dumps(_content(launch), allow_nan=False)
            assert all(isinstance(word, str) and "\x00" not in word for word in launch.argv)
            assert all(isinstance(name, str) and isinstance(value, str) for name, value in launch.env.items())
            assert all(_is_inside(name) for name in (*launch.files, *launch.outputs)), "nothing outside the launch's own folder"
            assert launch.limit_s is None or launch.limit_s > 0
            assert launch.resources.cpus >= 0
            assert launch.resources.gpus >= 0

    def test_different_configurations_have_different_names(self, backend: Backend, given: Mapping[str, Any]) -> None:
        task = backend.task(given)
        chosen = list(configs(backend, task))
        names = {backend.render(config, task, seed=1).name for config in chosen}
        assert len(names) == len(chosen) or names == {""}


class OutcomeSuite:
    """`parse`: reads everything, never raises."""

    def test_nonsense_is_never_a_success(self, backend: Backend, given: Mapping[str, Any]) -> None:
        task = backend.task(given)
        outputs = backend.render(backend.space(task).default(), task, seed=1).outputs
        for text in NONSENSE:
            for files in ({}, dict.fromkeys(outputs, text)):
                done = backend.parse(Completed(returncode=0, stdout=text, stderr=text, outputs=files, wall_s=1.0), task)
                assert done.status is not Status.OK, f"took {text[:60]!r} for a measurement"
                self.check(done)

    def test_a_failed_process_is_a_failure(self, backend: Backend, given: Mapping[str, Any]) -> None:
        task = backend.task(given)
        outputs = backend.render(backend.space(task).default(), task, seed=1).outputs
        for returncode in (1, 2, 3, 127, 137, 139, 255, -6, -9, -11, None):
            for text in NONSENSE[:8]:
                for files in ({}, dict.fromkeys(outputs, text)):
                    done = backend.parse(Completed(returncode=returncode, stderr=text, outputs=files, error=text), task)
                    assert done.status.failed, f"exit code {returncode} gave {done.status}"
                    self.check(done)

    def test_what_the_executor_knows_counts(self, backend: Backend, given: Mapping[str, Any]) -> None:
        task = backend.task(given)
        assert backend.parse(Completed(returncode=None, timed_out=True, wall_s=9.0), task).status is Status.TIMEOUT
        assert backend.parse(Completed(returncode=None, cancelled=True), task).status is Status.ABORTED
        assert backend.parse(Completed(returncode=-9, out_of_memory=True), task).status.out_of_memory

    def test_parse_is_pure(self, backend: Backend, given: Mapping[str, Any]) -> None:
        task = backend.task(given)
        completed = Completed(returncode=1, stdout="one", stderr="two", wall_s=3.0)
        assert backend.parse(completed, task) == backend.parse(completed, task)

    def check(self, done: Measurement) -> None:
        """What holds for every measurement of a failure."""
        assert isinstance(done, Measurement)
        assert done.fidelity is not Fidelity.PREDICTED, "measured, or simulated by a system that is not there"
        assert all(math.isfinite(value) for value in done.metrics.values())
        assert done.reason.strip(), "a failure says why"
        assert len(done.reason) < 2000
        json.dumps(done.to_json(), allow_nan=False)


class ExportSuite:
    """`export`: files that run the system."""

    def test_there_is_something_to_run(self, backend: Backend, given: Mapping[str, Any]) -> None:
        task = backend.task(given)
        for config in configs(backend, task):
            files = backend.export(config, task)
            assert files["run.sh"].startswith("#!"), "run.sh says who runs it"
            assert all(isinstance(text, str) and text for text in files.values())
            assert all(_is_inside(name) for name in files), "nothing outside the hand-over folder"
            assert files == backend.export(config, task), "the same configuration, the same files"

    def test_every_knob_reaches_the_files(self, backend: Backend, given: Mapping[str, Any]) -> None:
        task = backend.task(given)
        space = backend.space(task)
        assert isinstance(space, Space)
        for knob in space.knobs.values():
            ends = [config for value in (knob.values[0], knob.values[-1]) if (config := _with(space, knob.name, value)) is not None]
            if len(ends) == 2 and ends[0] != ends[1]:
                one, other = (dict(backend.export(config, task)) for config in ends)
                assert one != other, f"{knob.name} does not reach the hand-over files"


class BackendSuite(TaskSuite, SpaceSuite, LaunchSuite, OutcomeSuite, ExportSuite):
    """The contract of `autoscout.core.protocols.Backend`, one method per rule."""


def example(kind: type[Backend]) -> dict[str, Any]:
    """The description that a backend brings for this suite."""
    description = kind.example()
    advice = (
        "write `@classmethod def example(cls)` that returns a small task description, such as {'workload': {'model': 'tiny'}}, "
        "which `task` accepts and whose launches run here in seconds without special hardware"
    )
    assert isinstance(description, Mapping), f"{kind.__name__} brings no example: {advice}"
    return dict(description)


def refusal(backend: Backend, given: Mapping[str, Any]) -> ConfigError:
    """The error with which `task` refuses a description."""
    try:
        backend.task(given)
    except ConfigError as refused:
        error = refused
    else:
        raise AssertionError(f"accepted {given}")
    assert error.faults
    assert all(fault.rule for fault in error.faults)
    return error


def configs(backend: Backend, task: Task) -> Iterator[Config]:
    """The default and some random valid configurations, all different."""
    space = backend.space(task)
    yield space.default()
    assert isinstance(space, Space)
    random, distinct = stream(0, "backend suite"), {space.default()}
    for _ in range(CONFIGS):
        config = space.sample(random)
        if config is not None and config not in distinct:
            distinct.add(config)
            yield config


def _with(space: Space, name: str, value: Any) -> Config | None:
    """A valid configuration with one knob set and the others near their defaults; None when that value is never valid."""
    pinned = Config({name: value})
    return space.project(space.default(), pinned) if space.feasible(pinned) else None


def _content(launch: Launch) -> dict[str, Any]:
    """What a launch does, as plain data; its name does nothing."""
    return {"argv": list(launch.argv), "files": dict(launch.files), "env": dict(launch.env), "call": repr(launch.call)}


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts
