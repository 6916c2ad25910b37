"""Starts and ends the daemons of a small Slurm."""

from __future__ import annotations

import contextlib
import functools
import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from _slurm.files import CLUSTER, Layout, write_files, write_slurm_conf
from autoscout.common import processes

MARK = "AUTOSCOUT_SLURM_NODE"
"""Environment variable of a node's daemons, which its job steps inherit: how to find them when the node is to die."""

START_S = 120.0
"""How long a daemon may take; on a busy machine they do."""

CLIENT_S = 60.0
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "sinfo")
DATABASE_PROGRAMS = ("slurmdbd", "sacctmgr", "mariadbd", "mariadb-install-db")
PATHS = "/usr/sbin:/usr/bin:/sbin:/bin"


def missing(accounting: bool = True) -> str:
    """Why there can be no Slurm here; empty when there can."""
    programs = (*PROGRAMS, *(DATABASE_PROGRAMS if accounting else ()))
    absent = [name for name in programs if shutil.which(name, path=_path()) is None]
    if not absent:
        return ""
    packages = "slurmctld slurmd slurm-client slurm-wlm-basic-plugins slurmdbd munge mariadb-server"
    return f"SLURM NOT TESTED: no {', '.join(absent)}; apt-get install {packages}"


class SlurmCluster:
    """A Slurm of several nodes on this machine. A context manager: nothing is left when the block ends.

    Start it on a thread that lives as long as the cluster: its daemons are ended by the kernel when that thread is gone.

    Args:
        folder: For files, logs and state; made if it is not there.
        nodes: How many; they are called n1, n2, ...
        gpus: GPUs of each. They are plain files: jobs get their numbers, programs find no device.
        cpus: CPUs of each, whatever the machine has.
        memory_mb: Memory of each, likewise.
        accounting: Whether there is a database: priorities need one.
        gpu_types: Type of the GPUs of each node; a100 for all when empty. It is a feature of the node too.
        partitions: Lines of partitions; one with all nodes when empty.
        options: Further lines of slurm.conf, by name.
    """

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 4,
        gpus: int = 4,
        cpus: int = 8,
        memory_mb: int = 4000,
        accounting: bool = True,
        gpu_types: Sequence[str] = (),
        partitions: Sequence[str] = (),
        options: Mapping[str, object] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder.resolve()
        self.options = dict(options or {})
        self._sockets = Path(tempfile.mkdtemp(prefix="autoscout-slurm-"))
        controller, database, storage, *listening = _free_ports(3 + nodes)
        self.nodes = tuple(f"n{number}" for number in range(1, nodes + 1))
        self._layout = Layout(
            folder=self.folder,
            sockets=self._sockets,
            nodes=dict(zip(self.nodes, listening, strict=True)),
            gpus=gpus,
            gpu_types=gpu_types or ("a100",) * nodes,
            cpus=cpus,
            memory_mb=memory_mb,
            ports=(controller, database, storage),
            accounting=accounting,
            partitions=partitions,
        )
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._first_job = 0

    @property
    def environment(self) -> dict[str, str]:
        """What clients of this cluster need."""
        return {**os.environ, "SLURM_CONF": str(self._layout.configuration), "PATH": _path()}

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start everything and wait until all nodes are idle."""
        reason = missing(self._layout.accounting)
        if reason:
            raise RuntimeError(reason)
        write_files(self._layout, self.options)
        self._start_munge()
        if self._layout.accounting:
            self._start_database()
        self.start_controller()
        for name in self.nodes:
            self.start_node(name)
        self.wait_until(lambda: set(self.states().values()) == {"idle"}, f"all nodes idle; they are {self.states()}")

    def close(self) -> None:
        """End everything; may be called twice."""
        for name in self.nodes:
            self.kill_node(name)
        for name in list(reversed(self._daemons)):
            self._kill(name)
        self._daemons.clear()
        shutil.rmtree(self._sockets, ignore_errors=True)

    def run(self, *command: str, check: bool = True) -> str:
        """What a client program prints, `squeue -h` say."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=CLIENT_S, check=False, cwd=self.folder)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}{self.logs()}")
        return done.stdout

    def states(self) -> dict[str, str]:
        """The state of each node, as `sinfo` calls it: idle, alloc, mix, down*, ..."""
        rows = (line.split() for line in self.run("sinfo", "-h", "-N", "-o", "%N %t", check=False).splitlines())
        return {row[0]: row[1] for row in rows if len(row) == 2}

    def jobs(self) -> dict[int, str]:
        """The jobs that have not ended, with their states."""
        rows = (line.split() for line in self.run("squeue", "-h", "-o", "%A %T").splitlines())
        return {int(row[0]): row[1] for row in rows}

    def configure(self, options: Mapping[str, object]) -> None:
        """Change lines of slurm.conf in the running cluster; partitions and devices need a new one."""
        self.options |= options
        write_slurm_conf(self._layout, self.options)
        self.run("scontrol", "reconfigure")

    def begin_anew(self, options: Mapping[str, object]) -> float:
        """Start slurmctld again with these lines of slurm.conf, without jobs or usage; accounting stays. The moment at which it began."""
        numbers = f"{self._first_job + 1}"
        self._first_job += 10_000  # accounting tells jobs of different runs apart
        self.kill_controller()
        shutil.rmtree(self.folder / "state")
        (self.folder / "state").mkdir()
        self.options = {**options, "FirstJobId": numbers}
        write_slurm_conf(self._layout, self.options)
        began_s = time.time()
        self.start_controller()
        self.wait_until(lambda: set(self.states().values()) == {"idle"}, f"all nodes idle; they are {self.states()}")
        return began_s

    def start_node(self, name: str) -> None:
        """Start the daemon of a node, also after it was killed."""
        (self.folder / "spool" / name).mkdir(exist_ok=True)
        self._start(name, ["slurmd", "-D", "-N", name], {MARK: f"{self.folder}:{name}"})

    def kill_node(self, name: str) -> None:
        """End a node as a power cut does: its daemon, and all jobs on it, at once."""
        self._kill(name)
        marked = [pid for pid, value in processes.marked(MARK) if value == f"{self.folder}:{name}"]
        below = [child for pid in marked for child in processes.descendants(pid)]
        for pid in {*marked, *below}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_daemon(self, name: str) -> None:
        """Kill the daemon of a node and leave its jobs: the cluster loses the node, the jobs do not notice."""
        self._kill(name)

    def start_controller(self) -> None:
        """Start slurmctld; with the jobs it had before when it was killed."""
        has_state = (self.folder / "state" / "clustername").exists()
        self._start("slurmctld", ["slurmctld", "-D", *([] if has_state else ["-c"])])
        self.wait_until(lambda: "UP" in self.run("scontrol", "ping", check=False), "slurmctld answers")

    def kill_controller(self) -> None:
        """Kill slurmctld."""
        self._kill("slurmctld")

    def hang_controller(self) -> None:
        """Have slurmctld stop answering, until `wake_controller`."""
        self._daemons["slurmctld"].send_signal(signal.SIGSTOP)

    def wake_controller(self) -> None:
        """Have it resume."""
        self._daemons["slurmctld"].send_signal(signal.SIGCONT)

    def logs(self) -> str:
        """The end of what the daemons said, for messages."""
        files = sorted([*self.folder.glob("*.log"), *self.folder.glob("*.out")])
        return "".join(f"\n--- {path.name}\n{path.read_text(errors='replace')[-1500:]}" for path in files)

    def wait_until(self, condition: Callable[[], bool], what: str, patience_s: float = START_S, every_s: float = 0.1) -> None:
        """Wait for something; raises with the logs when it does not come."""
        deadline_s = time.monotonic() + patience_s
        while not condition():
            ended = [name for name, daemon in self._daemons.items() if daemon.poll() is not None]
            if ended or time.monotonic() > deadline_s:
                raise RuntimeError(f"Slurm: {', '.join(ended)} ended; waited for: {what}{self.logs()}")
            time.sleep(every_s)

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        files = {"key-file": key, "socket": self._layout.munge_socket}
        files |= {f"{name}-file": self.folder / f"munge.{name}" for name in ("pid", "log", "seed")}
        self._start("munged", ["munged", "--foreground", "--force", *(f"--{name}={path}" for name, path in files.items())])
        self.wait_until(self._layout.munge_socket.exists, "munged opens its socket")

    def _start_database(self) -> None:
        data, user = self.folder / "mariadb", getpass.getuser()
        own = f"--tmpdir={self.folder}"  # tables of two databases have the same names there when both are made at once
        if not data.exists():
            command = ["mariadb-install-db", "--no-defaults", f"--datadir={data}", f"--user={user}", "--skip-test-db", own]
            self.run(*command, "--auth-root-authentication-method=normal")
        here = [own, f"--datadir={data}", f"--socket={self._sockets}/db.sock", f"--pid-file={self.folder}/mariadb.pid", f"--user={user}"]
        small = ["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M", "--innodb-lock-wait-timeout=900"]
        listen = ["--bind-address=127.0.0.1", f"--port={self._layout.ports[2]}", "--skip-grant-tables"]  # reached from this machine only
        self._start("mariadbd", ["mariadbd", "--no-defaults", *here, *small, *listen])
        self.wait_until(lambda: _is_up(self._layout.ports[2]), "the database answers")
        self._start("slurmdbd", ["slurmdbd", "-D"])
        self.wait_until(lambda: _is_up(self._layout.ports[1]), "slurmdbd answers")
        for what in (["cluster", CLUSTER], ["account", "research"], ["user", user, "account=research"]):
            self.run("sacctmgr", "--immediate", "add", *what)

    def _start(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        with (self.folder / f"{name}.out").open("ab") as output:
            self._daemons[name] = subprocess.Popen(
                command,
                env={**self.environment, **(environment or {})},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=functools.partial(processes.die_with_parent, os.getpid()),  # noqa: PLW1509 tests start it before any thread
            )

    def _kill(self, name: str) -> None:
        daemon = self._daemons.pop(name, None)
        if daemon is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait()


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:{PATHS}"


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def _is_up(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True
