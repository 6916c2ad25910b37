"""What `autoscout estimate` is asked for, with the user's launch read, and the files that it hands over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from autoscout.catalog.hardware import present_hardware
from autoscout.catalog.models import model as known_model
from autoscout.cli import options
from autoscout.core import plugins
from autoscout.core.config import Value
from autoscout.core.errors import ConfigError, Fault
from autoscout.estimate.baseline import unread
from autoscout.estimate.defaults import LAUNCHED
from autoscout.estimate.pins import read_system
from autoscout.estimate.search import Candidate
from autoscout.report import exported
from autoscout.simulators.serving.read import KNOBS
from autoscout.study.campaign import build_campaign
from autoscout.study.own import FROM, backend_of, own_knobs, read_own
from autoscout.study.setup import prepare_one

SPELLING: Mapping[tuple[str, Value], Value] = {("sglang", "fp8"): "fp8_e4m3"}
"""Engine and format of a cache -> what the engine calls it, where that is something else."""
AS_PUBLISHED = ("auto", "fp4")
"""Formats of weights that no engine makes when it starts: the weights are published in them, or are not."""
SERVED_ONLY = f"reads launches of {' and '.join(LAUNCHED)} only"


class AskedEstimate(NamedTuple):
    """System, model and GPUs of an estimate, as given or as the launch says them.

    Attributes:
        system: As calibrations know it.
        model: What is predicted.
        gpus: COUNTxGPU.
        served: The model that files start: the launch's own where it names one.
        launch: The launch; empty for none.
        workload: Fields that the launch sets.
        knobs: Knobs of the launch; None without one.
        left_out: What of the launch means nothing here.
    """

    system: str
    model: str
    gpus: str
    served: str
    launch: str = ""
    workload: Mapping[str, Any] = {}
    knobs: Mapping[str, Value] | None = None
    left_out: tuple[str, ...] = ()


def read_asked(system: str | None, launch: str | None, *, model: str, gpus: str, gpu: str) -> AskedEstimate:
    """What the command line asks for.

    Raises:
        ConfigError: something is missing, or the model is not that of the launch.
    """
    if launch is None:
        _refuse_missing({"SYSTEM": system, "--model": model, "--gpus": gpus}, "Give it, or --from LAUNCH")
        return AskedEstimate(read_system(str(system)), model, f"{gpus.split('x', 1)[0]}x{gpu}" if gpu else gpus, model)
    name = read_system(system) if system else backend_of(launch)
    if name not in LAUNCHED:
        fix = "Leave --from out, and give SYSTEM, --model and --gpus"
        raise ConfigError(Fault(where="estimate", field="--from", value=name, rule=SERVED_ONLY, fix=fix))
    backend: Any = plugins.get("backend", name)()
    own = read_own(build_campaign({"system": name, FROM: launch}, where="command line"), backend)
    workload, knobs = dict(own.campaign.workload), own_knobs(own.campaign)
    named = str(workload.get("model") or "")
    _refuse_other_model(named, model)
    model = model or named
    count = gpus.split("x", 1)[0] if gpus else str(own.campaign.hardware.get("gpus") or 1)
    kind = gpu or ("" if gpus else str(present_hardware().get("gpu", "")))
    machines = f"{count}x{kind}" if kind else gpus
    fix = f"Give --gpus {count}xGPU or --gpu GPU: a launch does not say which GPU it runs on" if model else "Give it"
    _refuse_missing({"--model": model, "--gpus": machines}, fix)
    ignored = unread(knobs)
    note = (f"{', '.join(ignored)}: the prediction does not read {'it' if len(ignored) == 1 else 'them'}.",) if ignored else ()
    sentences = [sentence for sentence in own.left_out if not (model and "give --model" in sentence.lower())]
    return AskedEstimate(name, model, machines, named or model, launch, workload, knobs, (*sentences, *note))


def write_files(folder: Path, asked: AskedEstimate, task: Mapping[str, Any], chosen: Candidate) -> None:
    """Write the hand-over of a predicted configuration: what the backend of that system would run.

    Where there is a launch, the configuration goes over it; the engine's default is without its knobs.

    Raises:
        ConfigError: there is no such backend, or it has no space of its own.
    """
    if asked.system not in LAUNCHED:
        rule = f"files are written for {' and '.join(LAUNCHED)} only"
        raise ConfigError(Fault(where="--export", value=asked.system, rule=rule, fix="Leave --export out"))
    served = str(Path(asked.served).parent) if Path(asked.served).is_file() else asked.served  # of a config.json the folder is served
    task = {**task, "workload": {**asked.workload, **task["workload"], "model": served}}
    backend: Any = plugins.get("backend", asked.system)()
    if asked.launch and not (chosen.is_default and not chosen.is_baseline):
        pins = {} if chosen.is_baseline else _named(asked.system, chosen.config, backend.space(backend.task(task)).knobs)
        blocks = {"system": asked.system, FROM: asked.launch, "hardware": task["hardware"], "set": pins}
        workload = {name: value for name, value in task["workload"].items() if name not in asked.workload}
        limits = {"slo": task["objective"]["limits"]}
        setup, config = prepare_one(build_campaign({**blocks, "workload": workload, "goal": limits}, where="command line"))
        options.write_scripts(folder, exported.export(setup.backend, config, setup.task))
        return
    read = backend.task(task)
    space = backend.space(read)
    values = _named(asked.system, chosen.config, space.knobs)
    options.write_scripts(folder, exported.export(backend, space.project({**space.default(), **values}), read))


def _named(system: str, config: Mapping[str, Value], knobs: Mapping[str, Any]) -> dict[str, Value]:
    """A configuration by the names that the engine's knobs and formats have."""
    names = {alias: name for aliases in KNOBS.values() for alias in aliases for name in aliases if name in knobs}
    values = {name: SPELLING.get((system, value), value) if name in KNOBS["kv_dtype"] else value for name, value in config.items()}
    choices = {name: value for name, value in values.items() if name not in KNOBS["precision"] or value not in AS_PUBLISHED}
    return {names[name]: value for name, value in choices.items() if name in names}


def _refuse_missing(values: Mapping[str, str | None], fix: str) -> None:
    faults = [Fault(where="estimate", field=name, rule="is missing", fix=fix) for name, value in values.items() if not value]
    if faults:
        raise ConfigError(faults)


def _refuse_other_model(launched: str, given: str) -> None:
    """Refuse two different models that are both known; a known one may stand for one that is not, such as a copy with other weights."""
    if not launched or not given or launched == given:
        return
    try:
        same = known_model(launched) == known_model(given)
    except ConfigError:
        return
    if not same:
        rule, fix = f"the launch of --from serves {launched}", "Leave --model out, or give the launch of that model"
        raise ConfigError(Fault(where="estimate", field="--model", value=given, rule=rule, fix=fix))


__all__ = ["AskedEstimate", "read_asked", "write_files"]
