"""The processes and machines that a training command asks for: flags of launchers, files that they read, GPUs that it names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from autoscout.common import document
from autoscout.common.files import parse_hostfile
from autoscout.core.errors import ConfigError, Fault
from autoscout.training.hardware import ALL

PER_NODE = ("nproc_per_node", "num_gpus")
NODES = ("nnodes", "num_nodes", "num_machines")
EVERYWHERE = ("num_processes",)
OUTER = {"srun": ("N nodes", "n ntasks"), "mpirun": ("", "n np c"), "mpiexec": ("", "n np"), "horovodrun": ("", "np num-proc")}
"""Launchers of plain programs, with their flags for machines and for processes of all machines."""
JOB_HOSTFILE = "/job/hostfile"  # that DeepSpeed reads where none is named
WHERE_TO_MEET = ("master_addr", "master_port", "node_rank", "rdzv_endpoint", "rdzv_backend", "rdzv_id", "rdzv_conf", "nnodes",
                 "main_process_ip", "machine_rank", "num_machines")  # fmt: skip
"""Flags by which torchrun and accelerate are told what every trial tells them."""


@dataclass(frozen=True, kw_only=True)
class MachineFacts:
    """What a command asks for.

    Attributes:
        processes: On all machines; `ALL` for one per GPU, or per core where there is none; 0 where nobody says.
        nodes: Machines.
        gpus: That it names, where it does not count processes; None where it names none.
        on_cpu: Whether it says that it trains without GPUs.
    """

    processes: int | str = 0
    nodes: int = 1
    gpus: int | None = None
    on_cpu: bool = False

    @property
    def hardware(self) -> dict[str, Any]:
        """The same as facts of a task."""
        return {
            **({"device": "cpu"} if self.on_cpu else {}),
            **({"nodes": self.nodes} if self.nodes > 1 else {}),
            **({"processes": self.processes} if self.processes else {}),
            **({"gpus": self.gpus * self.nodes} if self.gpus and self.processes in (0, ALL) else {}),
        }


def machine_facts(before: Sequence[str], options: Mapping[str, str], launcher: str, visible: str | None, job: str = "") -> MachineFacts:
    """Of one command.

    Args:
        before: Its words before the script.
        options: Of the launcher: values by name, with underscores.
        launcher: Its name; empty where the script is started by itself.
        visible: The GPUs that a variable names.
        job: Flags of the Slurm job that the text describes.

    Raises:
        ConfigError: a file of hosts or of settings cannot be read, or names no host that is asked for.
    """
    gpus = None if visible is None else len([name for name in visible.split(",") if name.strip() and name.strip() != "-1"])
    on_cpu = gpus == 0
    if launcher == "deepspeed" and (slots := _deepspeed_slots(options)):
        return MachineFacts(processes=sum(slots.values()), nodes=len(slots), on_cpu=on_cpu)
    if launcher == "accelerate":
        options = {**_accelerate_file(options), **options}
        on_cpu = on_cpu or options.get("cpu") is not None or options.get("use_cpu") == "True"
    outer_nodes, tasks = _outer(before, job)
    if not launcher:
        return MachineFacts(processes=tasks, nodes=outer_nodes, gpus=gpus, on_cpu=on_cpu)
    nodes = _number(options, NODES) or outer_nodes
    named = next((options[name] for name in PER_NODE if name in options), "")
    if named in ("auto", "gpu", "cpu"):
        return MachineFacts(processes=ALL, nodes=nodes, gpus=gpus, on_cpu=on_cpu or named == "cpu")
    return MachineFacts(processes=_number(options, EVERYWHERE) or _number(options, PER_NODE) * nodes, nodes=nodes, gpus=gpus, on_cpu=on_cpu)


def meeting_places(words: Sequence[str], launcher: str) -> Iterator[int]:
    """The words, by their places, that tell a launcher where its machines meet, which every trial tells it itself."""
    if launcher not in ("torchrun", "accelerate"):
        return
    place = 0
    while place < len(words):
        name, equals, _ = words[place].partition("=")
        if name.startswith("--") and name.lstrip("-").replace("-", "_") in WHERE_TO_MEET:
            yield place
            if not equals:
                place += 1
                yield place
        place += 1


def _deepspeed_slots(options: Mapping[str, str]) -> dict[str, int]:
    """Processes by host, as DeepSpeed's launcher chooses them; empty where only this machine is known."""
    path = Path(options.get("hostfile") or JOB_HOSTFILE).expanduser()
    hosts = {name: list(slots) for name, slots in parse_hostfile(path.read_text(), str(path)).items()} if path.is_file() else {}
    include, exclude = options.get("include", ""), options.get("exclude", "")
    chosen = _hosts_in(include, hosts)
    if exclude and hosts:
        for host, slots in _hosts_in(exclude, hosts).items():
            chosen[host] = [slot for slot in chosen[host] if slot not in slots]
    chosen = {host: slots for host, slots in chosen.items() if slots}
    if (most := _number(options, ("num_nodes",))) and not include:
        chosen = dict(list(chosen.items())[:most])
    if (most := _number(options, ("num_gpus",))) and not include:
        chosen = {host: slots[:most] for host, slots in chosen.items()}
    return {host: len(slots) for host, slots in chosen.items()}


def _hosts_in(text: str, hosts: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """`worker-0@worker-1:0,2`: hosts with the slots that are meant; all of them for empty text."""
    if not text:
        return {host: list(slots) for host, slots in hosts.items()}
    chosen: dict[str, list[int]] = {}
    for part in text.split("@"):
        host, colon, listed = part.partition(":")
        if hosts and host not in hosts:
            rule = f"names no host of the hostfile, which has {', '.join(hosts)}"
            raise ConfigError(Fault(where="from", field="--include", value=repr(text), rule=rule))
        numbers = [int(number) for number in re.findall(r"\d+", listed)]
        chosen[host] = numbers if colon else list(hosts.get(host, ()))
    return chosen


def _accelerate_file(options: Mapping[str, str]) -> dict[str, str]:
    """What the settings of accelerate say, where a file of them is named."""
    path = Path(options.get("config_file", "")).expanduser()
    if not path.is_file():
        return {}
    settings = document.compose(document.read_text(path), str(path)).value
    names = ("num_processes", "num_machines", "use_cpu")
    return {name: str(settings[name]) for name in names if isinstance(settings, Mapping) and name in settings}


def outer_place(before: Sequence[str]) -> int:
    """Where the launcher of a scheduler or of MPI stands; -1 where there is none."""
    return next((place for place, word in enumerate(before) if PurePosixPath(word).name in OUTER), -1)


def _outer(before: Sequence[str], job: str) -> tuple[int, int]:
    """Machines, and processes on all of them, of a program that Slurm or MPI starts; what the program's own words say comes first."""
    place = outer_place(before)
    name = PurePosixPath(before[place]).name if place >= 0 else "srun"
    own = " ".join(before[place + 1 :]) if place >= 0 else ""
    texts = (own, job) if name == "srun" else (own,)
    nodes, everywhere, each = (
        next((number for text in texts if (number := _flag(text, names))), 0)
        for names in (OUTER[name][0], OUTER[name][1], "ntasks-per-node npernode ppr")
    )
    nodes = nodes or 1
    return nodes, (everywhere or each * nodes or (nodes if nodes > 1 else 0)) if place >= 0 else 0


def _flag(text: str, names: str) -> int:
    """The number that the first of some flags has: `-N 2`, `-N2`, `--nodes=2`."""
    for name in names.split():
        pattern = rf"(?<!\S)-{name}\s*(\d+)(?!\S)" if len(name) == 1 else rf"(?<!\S)--?{name}[=\s](\d+)(?!\S)"
        if match := re.search(pattern, text):
            return int(match[1])
    return 0


def _number(options: Mapping[str, str], names: Sequence[str]) -> int:
    """The number of an option; the most of a range such as 1:4; 0 where there is none."""
    for name in names:
        if match := re.fullmatch(r"(?:\d+:)?(\d+)", options.get(name, "")):
            return int(match[1])
    return 0


__all__ = ["MachineFacts", "machine_facts", "meeting_places", "outer_place"]
