"""A system to measure that is a real program: a Python script whose behaviour is its one knob `x`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscout.core.config import Config
from autoscout.core.launch import Completed, Launch, Resources
from autoscout.core.protocols import Backend
from autoscout.core.task import Direction, Objective, Task
from autoscout.core.trial import Measurement, Proposal, Status

SCRIPT = """
import json, os, sys, time
x, seed, folder = sys.argv[1], sys.argv[2], sys.argv[3]
print("seed", seed)
if x == "crash":
    sys.exit("it broke")
if x == "hang":
    open(os.path.join(folder, "hanging"), "w").close()
    time.sleep(3600)
if x == "garbage":
    print("\\x00 no json here")
elif x == "silent":
    open("out.json", "w").write(json.dumps({"other": 1.0}))
else:
    open("out.json", "w").write(json.dumps({"time_s": float(x), "seed": int(seed)}))
"""


def task() -> Task:
    return Task(system="script", objective=Objective(metric="time_s", direction=Direction.MINIMIZE))


def proposal(x: float | str, repeat: int = 0) -> Proposal:
    return Proposal(config=Config(x=x), repeat=repeat)


class Behaviours:
    """The space of that knob."""

    def default(self) -> Config:
        return Config(x=1)

    def check(self, config: Config) -> list[str]:
        return ["x is forbidden", "it really is"] if config.get("x") == "forbidden" else []

    def fingerprint(self) -> str:
        return "behaviours"


@dataclass
class Script(Backend):
    """Renders and parses it; nobody asks more of it."""

    folder: str = ""  # where a hanging one says that it hangs
    argv0: str = sys.executable
    resources: Resources = field(default_factory=Resources)
    seeds: list[int] = field(default_factory=list)
    completed: list[Completed] = field(default_factory=list)

    def task(self, given: Mapping[str, object]) -> Task:
        raise NotImplementedError

    def space(self, task: Task) -> Behaviours:
        raise NotImplementedError

    def export(self, config: Config, task: Task) -> dict[str, str]:
        raise NotImplementedError

    def render(self, config: Config, task: Task, seed: int) -> Launch:
        self.seeds.append(seed)
        x = str(config["x"])
        if x == "unrenderable":
            raise KeyError("no such flag")
        argv0 = "no-such-engine" if x == "missing" else self.argv0
        resources = Resources(gpus=999) if x == "greedy" else self.resources
        return Launch(argv=(argv0, "-c", SCRIPT, x, str(seed), self.folder), outputs=("out.json",), resources=resources)

    def parse(self, completed: Completed, task: Task) -> Measurement:
        import json

        self.completed.append(completed)
        if completed.returncode not in (0, None):
            return Measurement(status=Status.CRASHED, reason="exit code")
        return Measurement(status=Status.OK, metrics=json.loads(completed.outputs["out.json"]))
