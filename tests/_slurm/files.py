"""The configuration files of a small Slurm in one folder."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CLUSTER = "scratch"
PARTITION = "main"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What the cluster consists of.

    Attributes:
        folder: Where files, logs and state are.
        sockets: A folder with a short path: the paths of sockets end at 107 characters.
        nodes: Names of the nodes -> the port on which each listens.
        gpus: GPUs of each node; each is a plain file.
        gpu_types: Type of the GPUs of each node.
        cpus: CPUs of each node, whatever the machine has.
        memory_mb: Memory of each node, likewise.
        ports: Of `slurmctld`, `slurmdbd` and `mariadbd`.
        accounting: Whether there is a database.
        partitions: Lines of partitions; one with all nodes when empty.
    """

    folder: Path
    sockets: Path
    nodes: Mapping[str, int]
    gpus: int
    gpu_types: Sequence[str]
    cpus: int
    memory_mb: int
    ports: tuple[int, int, int]
    accounting: bool
    partitions: Sequence[str] = ()

    @property
    def munge_socket(self) -> Path:
        return self.sockets / "munge.sock"

    @property
    def configuration(self) -> Path:
        return self.folder / "slurm.conf"


def write_files(layout: Layout, options: Mapping[str, object]) -> None:
    """Write all of them; `options` are further lines of slurm.conf and win over ours."""
    for name in ("state", "spool", "gpus"):
        (layout.folder / name).mkdir(exist_ok=True)
    for number in range(layout.gpus):
        (layout.folder / "gpus" / f"nvidia{number}").touch()
    (layout.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # this release has no way to do without
    (layout.folder / "gres.conf").write_text(_devices(layout))
    write_slurm_conf(layout, options)
    if layout.accounting:
        path = layout.folder / "slurmdbd.conf"
        path.touch(mode=0o600)
        path.chmod(0o600)  # slurmdbd refuses a file that others can read
        path.write_text(_lines(_database(layout)))


def write_slurm_conf(layout: Layout, options: Mapping[str, object]) -> None:
    """Write slurm.conf alone: what can be changed while the cluster runs."""
    settings = {**_settings(layout), **(_accounting(layout) if layout.accounting else {}), **options}
    nodes = [_node(layout, name, kind) for name, kind in zip(layout.nodes, layout.gpu_types, strict=True)]
    partitions = layout.partitions or [f"PartitionName={PARTITION} Nodes=ALL Default=YES MaxTime=INFINITE State=UP"]
    layout.configuration.write_text(_lines(settings) + "\n".join([*nodes, *partitions]) + "\n")


def _lines(settings: Mapping[str, object]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _devices(layout: Layout) -> str:
    files = layout.folder / "gpus" / f"nvidia[0-{layout.gpus - 1}]" if layout.gpus > 1 else layout.folder / "gpus" / "nvidia0"
    rows = [f"NodeName={name} Name=gpu Type={kind} File={files}" for name, kind in zip(layout.nodes, layout.gpu_types, strict=True)]
    return "\n".join(["AutoDetect=off", *(rows if layout.gpus else [])]) + "\n"


def _node(layout: Layout, name: str, kind: str) -> str:
    devices = f" Gres=gpu:{kind}:{layout.gpus}" if layout.gpus else ""
    place = f"NodeHostname={_host()} NodeAddr=127.0.0.1 Port={layout.nodes[name]}"
    return f"NodeName={name} {place} CPUs={layout.cpus} RealMemory={layout.memory_mb}{devices} Feature={kind} State=UNKNOWN"


def _settings(layout: Layout) -> dict[str, object]:
    folder = layout.folder
    return {
        "ClusterName": CLUSTER,
        "SlurmctldHost": f"{_host()}(127.0.0.1)",
        "SlurmctldPort": layout.ports[0],
        "SlurmUser": getpass.getuser(),
        "SlurmdUser": getpass.getuser(),
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={layout.munge_socket}",
        "StateSaveLocation": folder / "state",
        "SlurmdSpoolDir": folder / "spool" / "%n",
        "SlurmctldPidFile": folder / "slurmctld.pid",
        "SlurmdPidFile": folder / "slurmd.%n.pid",
        "SlurmctldLogFile": folder / "slurmctld.log",
        "SlurmdLogFile": folder / "slurmd.%n.log",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "SlurmdParameters": "config_overrides",  # more CPUs and memory than the machine has
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "GresTypes": "gpu",
        "ReturnToService": 2,
        "KillWait": 5,
        "MessageTimeout": 30,
        "SlurmctldTimeout": 30,
        "SlurmdTimeout": 30,
        "SchedulerParameters": "bf_interval=1",
        "PriorityType": "priority/multifactor",
        "PriorityCalcPeriod": 1,
        "PropagateResourceLimits": "NONE",
        "MailProg": "/bin/true",
        "MpiDefault": "none",
    }


def _accounting(layout: Layout) -> dict[str, object]:
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": "127.0.0.1",
        "AccountingStoragePort": layout.ports[1],
        "AccountingStoragePass": layout.munge_socket,  # else the client asks the munge of the machine, and hangs
        "AccountingStorageTRES": "gres/gpu",
    }


def _database(layout: Layout) -> dict[str, object]:
    return {
        "DbdHost": _host(),
        "DbdAddr": "127.0.0.1",
        "DbdPort": layout.ports[1],
        "SlurmUser": getpass.getuser(),
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={layout.munge_socket}",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "127.0.0.1",
        "StoragePort": layout.ports[2],
        "StorageUser": getpass.getuser(),
        "StorageLoc": "slurm_acct",
        "LogFile": layout.folder / "slurmdbd.log",
        "PidFile": layout.folder / "slurmdbd.pid",
    }


def _host() -> str:
    return socket.gethostname().split(".")[0]
