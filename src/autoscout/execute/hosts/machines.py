"""The machines of a hostfile: asked what they are, drained when they are lost, and used again when they answer."""

from __future__ import annotations

import getpass
import os
import shlex
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from autoscout.core.errors import ClusterError, Fault
from autoscout.core.launch import Cleanliness, Completed
from autoscout.core.log import NOTICES, logger
from autoscout.execute._shared.allocation import Share
from autoscout.execute._shared.remote.agent import Hello
from autoscout.execute._shared.remote.channel import Channel, Lost, agent_command
from autoscout.execute._shared.remote.nodes import ClusterNode, NodePool
from autoscout.execute.hosts.options import HostsOptions

HELLO_S = 60.0  # how long a machine may take to answer
COPY_S = 3600.0
NOISY_IN_A_ROW = 3  # disturbed trials on a machine, while others are quiet

log = logger(__name__)
notices = logger(NOTICES)


class Machines:
    """All of them. The first to ask is whoever submits the first launch."""

    def __init__(self, options: HostsOptions, slots: dict[str, int], pool: NodePool, folder: Path, changed: Callable[[], None]) -> None:
        self.options = options
        self.hellos: dict[str, Hello] = {}
        self._slots = slots
        self._pool = pool
        self._folder = folder
        self._changed = changed
        self._token = folder.parent / f".autoscout-{uuid.uuid4().hex[:10]}"
        self._asking = threading.Lock()
        self._begun = False
        self._closed = threading.Event()
        self._noisy: dict[str, int] = {}

    def begin(self) -> None:
        """Ask all machines what they are, once.

        Raises:
            ClusterError: none of them answers, or files cannot be copied to any.
        """
        with self._asking:
            if self._begun:
                return
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            self._token.touch()
            problems = self._ask(self._slots)
            if not self.hellos:
                raise ClusterError(
                    [
                        Fault(
                            where="executor hosts",
                            field=host,
                            rule=f"does not answer: {why}",
                            fix=f"Try in your shell: {self.options.ssh} {host} {self.options.interpreter} --version",
                        )
                        for host, why in problems.items()
                    ]
                )
            self._choose_kind()
            self._begun = True
            threading.Thread(target=self._look_after, name="hosts", daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        self._token.unlink(missing_ok=True)

    def has_shared_folder(self, host: str) -> bool:
        """Whether the machine sees the folder of the trials."""
        return self.hellos[host].sees if self.options.shared is None else self.options.shared

    def open(self, host: str) -> Channel:
        """A way to a machine."""
        command = agent_command(self.options.interpreter, self.options.silence_s, str(self._token))
        if "/" in self.options.interpreter:  # a login over ssh has not activated its environment, where torchrun is
            command = ["/bin/sh", "-c", 'PATH="$0:$PATH" exec "$@"', str(Path(self.options.interpreter).parent), *command]
        return Channel(self.options.reach(host, command), os.environ, host, self.options.silence_s)

    def lost(self, host: str, why: str) -> None:
        """Start nothing there until it answers again."""
        if host not in self._pool.drained:
            notices.warning("%s is drained: %s", host, why[:300])
        self._pool.drain(host, why)

    def judge(self, host: str, completed: Completed) -> None:
        """Drain a machine on which one trial after the other is disturbed, while there are others."""
        disturbed = Cleanliness().is_dirty(completed.conditions)
        self._noisy[host] = self._noisy.get(host, 0) + 1 if disturbed else 0
        others = [node.name for node in self._pool.nodes if node.name != host and node.name not in self._pool.drained]
        if self._noisy[host] >= NOISY_IN_A_ROW and any(not self._noisy.get(other) for other in others):
            self._noisy[host] = 0
            self.lost(host, f"the last {NOISY_IN_A_ROW} trials there were disturbed by other work")

    def _ask(self, hosts: Iterable[str]) -> dict[str, str]:
        """Ask machines what they are: those that answer are used, the others are drained and returned with the reason."""
        problems: dict[str, str] = {}

        def one(host: str) -> None:
            try:
                self.hellos[host] = self._first_time(host)
                self._pool.add(self._node(host, self.hellos[host]))
            except Lost as error:
                problems[host] = str(error)
                self._pool.drain(host, str(error))

        with ThreadPoolExecutor(16, thread_name_prefix="hosts") as threads:
            list(threads.map(one, hosts))
        return problems

    def _first_time(self, host: str) -> Hello:
        channel = self.open(host)
        try:
            hello = channel.hello(self._closed, HELLO_S)
        finally:
            channel.close()
        if hello is None:
            raise Lost(f"{host}: AutoScout ends")
        for path in self.options.copy:
            self._copy(host, path)
        return hello

    def _copy(self, host: str, path: str) -> None:
        source = f"{path}/" if Path(path).is_dir() else path
        inside = ["--mkpath", "-e", self.options.ssh, source, f"{host}:{source}"]
        self._rsync(host, inside)

    def fetch(self, host: str, there: str, here: Path) -> None:
        """Bring a folder back."""
        here.mkdir(parents=True, exist_ok=True)
        self._rsync(host, ["-e", self.options.ssh, f"{host}:{there}/", f"{here}/"])

    def _rsync(self, host: str, arguments: list[str]) -> None:
        command = [*shlex.split(self.options.rsync), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=COPY_S, check=False, start_new_session=True)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Lost(f"{host}: {shlex.join(command)}: {error}") from error
        if done.returncode:
            raise Lost(f"{host}: {shlex.join(command)}: {done.stderr.strip()[-500:]}")

    def _node(self, host: str, hello: Hello) -> ClusterNode:
        slots = self._slots[host]
        cores = self.options.cpus if self.options.cpus is not None else hello.cores
        gpus = slots if self.options.gpus else 0
        return ClusterNode(name=host, cores=cores, gpus=gpus, memory_gb=hello.memory_gb, slots=slots, kind=hello.kind)

    def _choose_kind(self) -> None:
        """Use equal machines only, where the user wants that."""
        nodes = [node for node in self._pool.nodes if node.kind]
        kinds = {node.kind for node in nodes}
        if self.options.kinds == "any" or len(kinds) < 2:
            return
        best = max(kinds, key=lambda kind: (sum(node.slots for node in nodes if node.kind == kind), kind))
        left_out = [node.name for node in nodes if node.kind != best]
        notices.warning("trials run on machines of one kind (%s); not used: %s", best, ", ".join(left_out))
        for name in left_out:
            self._pool.forget(name)

    def _look_after(self) -> None:
        """Ask drained machines now and then whether they are back."""
        while not self._closed.wait(self.options.retry_s):
            drained = [name for name in self._pool.drained if name in {node.name for node in self._pool.nodes}]
            if drained and len(self._ask(drained)) < len(drained):
                self._changed()
            waiting = self._pool.drained
            if waiting and all(node.name in waiting for node in self._pool.nodes):
                notices.warning("no machine is left: %s", "; ".join(f"{name}: {why[:100]}" for name, why in waiting.items()))


class OnHosts:
    """One launch on machines of the hostfile."""

    def __init__(self, machines: Machines, folder: Path) -> None:
        self._machines = machines
        self._folder = folder

    def take(self, share: Share, stopped: threading.Event) -> tuple[Share, ...] | None:  # noqa: ARG002 - the pool has chosen
        return share.parts

    def open(self, part: Share) -> Channel:
        return self._machines.open(part.machine)

    def address(self, part: Share, hello: Hello) -> str:  # noqa: ARG002 - by the name in the hostfile all machines know each other
        return part.machine.rpartition("@")[2]

    def ended(self, part: Share, completed: Completed) -> Completed:
        self._machines.judge(part.machine, completed)
        if not completed.folder or self._machines.has_shared_folder(part.machine):
            return completed
        here = self._folder / Path(completed.folder).name
        try:
            self._machines.fetch(part.machine, completed.folder, here)
        except Lost as error:  # the answer itself has come through the channel
            log.warning("the folder of a trial stays on its machine: %s", error)
            return completed
        return replace(completed, folder=str(here))

    def lost(self, part: Share, why: str) -> None:
        self._machines.lost(part.machine, why)

    def give(self) -> None:
        """Nothing to do: the pool takes the machines back."""


def remote_folder(options: HostsOptions) -> Path:
    """Where trials run on a machine that does not share our folder."""
    return Path(options.remote_folder or f"/tmp/autoscout-{getpass.getuser()}")


__all__ = ["Machines", "OnHosts", "remote_folder"]
