"""The backend itself: task, space, launch, outcome, hand-over."""

from __future__ import annotations

import copy
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Self

from autoscout.backends.megatron import pretrain
from autoscout.backends.megatron.added import added_knobs
from autoscout.backends.megatron.launch import read_megatron_launch
from autoscout.backends.megatron.mixed import kinds_of, stage_layers
from autoscout.backends.megatron.settings import FILE, OVERLAP, arguments, core_file, overlap_file
from autoscout.backends.megatron.space import build_space
from autoscout.backends.megatron.start import defaults, start_faults
from autoscout.backends.megatron.workload import MegatronWorkload, read_workload
from autoscout.common.fields import refuse_if
from autoscout.common.text import suggestion
from autoscout.core.config import Config
from autoscout.core.errors import Fault
from autoscout.core.launch import Launch
from autoscout.core.names import Names
from autoscout.core.protocols import Asked, once_per_task
from autoscout.core.task import Task
from autoscout.core.user import UserLaunch
from autoscout.engines.command import variables
from autoscout.engines.space import ALL, resting
from autoscout.engines.table import EngineTable, KnobRow, table_for
from autoscout.engines.widening import KNOB_KEYS
from autoscout.space import Space
from autoscout.training.backend import TrainingBackend, nearest_config, training_launch
from autoscout.training.export import REAL_STEPS, export_files, torchrun
from autoscout.training.hardware import local_processes, machines, outside_environment
from autoscout.training.protocol import TFLOPS, WORK
from autoscout.training.workload import WHERE, read_training_task, workload_of

WORKER = "autoscout.backends.megatron.worker"
FOLLOWER = "autoscout.backends.megatron.pretrain"
CORE = "megatron-core"
ARGUMENTS = "arguments.txt"
PORT = "29500"  # where processes meet, torchrun's default


class MegatronBackend(TrainingBackend):
    """A training step of Megatron: the training script of your Megatron-LM checkout, or a built-in runner on the megatron-core package.

    Every configuration does the same work: one optimizer step over the same global batch. Knobs that seldom matter stay as Megatron has
    them unless the workload frees them (`free`).
    """

    requires: ClassVar[tuple[str, ...]] = ("torch", "megatron")
    knob_keys: ClassVar = KNOB_KEYS
    rows: Mapping[str, KnobRow] = MappingProxyType({})  # knobs that a campaign has added or given more values
    extra: ClassVar = "megatron"

    @classmethod
    def example(cls) -> Mapping[str, object]:
        return {"workload": {"model": "micro", "most_steps": 6, "loss_steps": 4}, "hardware": {"device": "cpu", "gpus": 0}}

    def task(self, given: Mapping[str, object]) -> Task:
        task = read_training_task("megatron", given, read_workload, ("torch", CORE), metrics=(TFLOPS,))
        workload, space = workload_of(MegatronWorkload, task), self.space(task)
        knobs = space.knobs
        refuse_if(
            [
                *start_faults(workload, task.hardware, space),
                *(
                    Fault(where=WHERE, field="free", value=repr(name), rule="there is no such knob", fix=suggestion(name, knobs))
                    for name in workload.free
                    if name not in knobs and name not in self.table(task).flags and name != ALL
                ),
            ]
        )
        return task

    def packages(self, task: Task) -> Sequence[str]:
        """A checkout brings Megatron, and its launcher PyTorch."""
        workload = workload_of(MegatronWorkload, task)
        return self.requires if not workload.checkout else () if workload.launcher else ("torch",)

    def read_launch(self, text: str, name: str) -> UserLaunch:
        return read_megatron_launch(text, name)

    def load(self, task: Task) -> str:
        workload = workload_of(MegatronWorkload, task)
        shape, name = workload.shape, workload.architecture.name
        how = f"{workload.script} of {workload.checkout}" if workload.checkout else "megatron-core's own model and schedules"
        where = f"{task.hardware['processes']} processes{machines(task.hardware)}"
        return (
            f"Steps of training {name} ({shape['layers']} layers) with {how} on {where}: "
            f"{workload.global_batch} sequences of {shape['sequence']} tokens, the same for every configuration."
        )

    def table(self, task: Task) -> EngineTable:
        """Settings and knobs of the task's version of megatron-core."""
        release = str(task.workload.get("core_version") or task.software.get(CORE) or "")
        return table_for("megatron", release).with_knobs(self.rows.values())

    def widened(self, task: Task, asked: Asked) -> Self:
        workload = workload_of(MegatronWorkload, task)
        reader = added_knobs(asked, self.table(task), self.space(task), defaults(workload, task.hardware), workload)
        refuse_if(reader.faults)
        wider = copy.copy(self)
        vars(wider).pop("_spaces_by_task", None)
        wider.rows = reader.rows
        return wider

    @once_per_task
    def space(self, task: Task) -> Space:
        return build_space(self.table(task), workload_of(MegatronWorkload, task), task.hardware)

    def resting(self, task: Task) -> tuple[str, ...]:
        """Knobs that a study leaves at their default unless they are set."""
        return resting(self.table(task), self.space(task), {}, free=workload_of(MegatronWorkload, task).free, allow_lossy=True)

    def hints(self, task: Task) -> tuple[Config, ...]:
        """What Megatron's own guides turn on first: the distributed optimizer with overlap, and the smallest other layouts."""
        space, processes = self.space(task), int(task.hardware["processes"])
        sharded = {"distributed_optimizer": True, "overlap_grad_reduce": True, "overlap_param_gather": True}
        candidates: list[dict[str, Any]] = [{"recompute": "selective", "attention": "sdpa"}, {"micro_batch": 4, "attention": "sdpa"}]
        if processes > 1:
            half = max(1, processes // 2)
            candidates = [sharded, {"tp": 2, "dp": half, "sequence_parallel": True}, {"pp": 2, "dp": half}]
        configs = [nearest_config(space, values) for values in candidates]
        return tuple(dict.fromkeys(config for config in configs if config is not None and config != space.default()))

    def render(self, config: Config, task: Task, seed: int) -> Launch:  # noqa: ARG002 - losses are compared, so the data stay the same
        workload, table = workload_of(MegatronWorkload, task), self.table(task)
        common: dict[str, Any] = {
            "config": dict(config),
            "workload": workload,
            "hardware": task.hardware,
            "env": _environment(config, task, self.table(task)),
            "name": Names(self.space(task).knobs).changed(config, self.space(task).default()),
        }
        if workload.checkout:
            run = {
                "argv": [*_launcher(workload, task), *self._words(config, task, str(workload.plan.steps), measured=True)],
                "cwd": workload.checkout,
                "sequence": workload.shape["sequence"],
                "global_batch": workload.global_batch,
                "memory_gib": float(task.hardware.get("memory_gb") or 0.0),
                "everywhere": not workload.reaches_others,
            }
            return training_launch(
                argv=(sys.executable, "-m", FOLLOWER, f"{{folder}}/{pretrain.FILE}"),
                ranks=0,
                files={pretrain.FILE: json.dumps(run, indent=1, sort_keys=True) + "\n", **overlap_file(config)},
                first_only=workload.reaches_others,
                **common,
            )
        work = {
            "shape": workload.shape,
            "device": task.hardware["device"],
            "seed": workload.seed,
            "global_batch": workload.global_batch,
            "steps": workload.plan.steps,
        }
        return training_launch(
            argv=(sys.executable, "-m", WORKER, f"{{folder}}/{WORK}", f"{{folder}}/{FILE}"),
            ranks=int(task.hardware["processes"]),
            files={WORK: json.dumps(work, indent=1, sort_keys=True) + "\n", FILE: core_file(config, table, workload)},
            depths=workload.depths,
            layers=workload.shape["layers"],
            **common,
        )

    def export(self, config: Config, task: Task) -> Mapping[str, str]:
        workload, launch = workload_of(MegatronWorkload, task), self.render(config, task, seed=0)
        common: dict[str, Any] = {
            "config": config,
            "hardware": task.hardware,
            "launch": launch,
            "env": _environment(config, task, self.table(task)),
        }
        if not workload.checkout:
            return export_files(
                command=f'{torchrun(task.hardware)} -m {WORKER} "$here/{WORK}" "$here/{FILE}" "${{STEPS:-{REAL_STEPS}}}"',
                notes=[f"Trains the built-in model; STEPS changes for how long. {FILE} holds the fields of megatron-core's own classes."],
                **common,
            )
        words = self._words(config, task, str(REAL_STEPS), measured=False)
        listed = "".join(f"{line}\n" for line in _lines([word.replace("{folder}/", "") for word in words[1:]]))
        return export_files(
            command=_shell(workload, task, words),
            cwd=workload.checkout,
            notes=[
                "Runs Megatron-LM with the settings found; arguments that follow count more: sh run.sh --train-iters 500000 --save ...",
                f"On several nodes start it on each, with MASTER_ADDR set (run.sbatch does). {ARGUMENTS} lists the same arguments.",
            ],
            files={ARGUMENTS: listed},
            everywhere=not workload.reaches_others,
            **common,
        )

    def _words(self, config: Config, task: Task, steps: str, *, measured: bool) -> list[str]:
        workload = workload_of(MegatronWorkload, task)
        layers = stage_layers(config, kinds_of(task.hardware), workload.least_layers)
        words = arguments(config, self.table(task), workload, layers, measured=measured)
        return [workload.script, *(word.replace("{steps}", steps) for word in words)]


def _launcher(workload: MegatronWorkload, task: Task) -> list[str]:
    """The command that starts the processes of one machine, or of all where the user's own launcher does."""
    nodes, local = int(task.hardware.get("nodes", 1)), local_processes(task.hardware)
    if workload.launcher:
        return [word.replace("{nodes}", str(nodes)).replace("{processes}", str(local)) for word in shlex.split(workload.launcher)]
    start = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(local)]
    if nodes == 1:
        return [*start, "--master-addr", "127.0.0.1", "--master-port", "{port}"]
    return [*start, "--nnodes", str(nodes), "--node-rank", "{node_rank}", "--master-addr", "{address}", "--master-port", "{port}"]


def _shell(workload: MegatronWorkload, task: Task, words: list[str]) -> str:
    """The launch as shell text, with files next to the script."""
    own = shlex.join(word.replace("{port}", PORT) for word in _launcher(workload, task)) if workload.launcher else ""
    start = own or torchrun(task.hardware)
    lines = _lines(words[1:])
    quoted = [f'--tp-comm-overlap-cfg "$here/{OVERLAP}"' if line.startswith("--tp-comm-overlap-cfg") else line for line in lines]
    return " \\\n    ".join([start, shlex.quote(words[0]), *quoted])


def _lines(words: list[str]) -> list[str]:
    """Words of a command line, one flag with its values a line, quoted for a shell."""
    lines: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not lines:
            lines.append([word])
        else:
            lines[-1].append(word)
    return [shlex.join(line) for line in lines]


def _environment(config: Config, task: Task, table: EngineTable) -> dict[str, str]:
    """Variables of a configuration. Megatron demands one connection where communication must start in the order of the computation."""
    own = outside_environment(config)
    if task.hardware["device"] == "cpu":
        own["TORCHDYNAMO_DISABLE"] = "1"  # megatron-core compiles small functions, which takes longer than a trial on a processor
    elif max(int(str(config.get(name, 1))) for name in ("tp", "cp")) > 1:
        own["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    knobs = Config({name: value for name, value in config.items() if name in table.knobs})
    return {**own, **task.workload.get("env", {}), **variables(knobs, table, {})}
