"""Trials on the machines of a hostfile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from autoscout.common.files import parse_hostfile
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.launch import Launch
from autoscout.core.protocols import Job
from autoscout.execute._shared.allocation import Share
from autoscout.execute._shared.call import pack_call, refuse_while_reimporting
from autoscout.execute._shared.executor import QueuedExecutor, check_launch
from autoscout.execute._shared.queue import LaunchRun
from autoscout.execute._shared.remote.nodes import NodePool
from autoscout.execute._shared.remote.order import LaunchOrder
from autoscout.execute._shared.remote.trial import Attempts, RemoteTrial
from autoscout.execute.hosts.machines import HELLO_S, Machines, OnHosts, remote_folder
from autoscout.execute.hosts.options import HostsOptions


class HostsExecutor(QueuedExecutor):
    """Runs trials on the machines of a hostfile, reached through ssh.

    On the machine a trial runs under the supervisor of the local executor, on cores and GPUs of its own. AutoScout must be reachable
    there under the same path, or be installed. A machine that does not answer is drained until it does, and its trials run elsewhere. When
    AutoScout ends, however that happens, its trials end too: at once, or after `silence_s` on a machine that is cut off.
    """

    programs: ClassVar[tuple[str, ...]] = ("ssh", "rsync")

    def __init__(self, options: HostsOptions | None = None) -> None:
        self.options = options = options or HostsOptions()
        slots = {host: len(numbers) for host, numbers in parse_hostfile(_read(options.hostfile), str(options.hostfile)).items()}
        self._pool = NodePool(options.slots, (), "the hostfile")
        super().__init__(options, self._pool, "hosts")
        self._machines = Machines(options, slots, self._pool, self._settings.folder, self._queue.dispatch)

    def submit(self, launch: Launch) -> Job:
        refuse_while_reimporting()
        check_launch(launch)
        packed = None if launch.call is None else pack_call(launch.call, launch.name)
        self._machines.begin()
        sharing = self.options.sharing(()) if launch.resources.gpus else None
        order = LaunchOrder(launch=replace(launch, call=None), settings=self._settings, packed=packed, sharing=sharing)
        attempts = Attempts(most=self.options.attempts)
        return self._queue.submit(launch, lambda share: self._prepare(order, share, attempts))

    def close(self) -> None:
        self._queue.close()
        self._machines.close()
        super().close()

    def _prepare(self, order: LaunchOrder, share: Share, attempts: Attempts) -> LaunchRun:
        if not all(self._machines.has_shared_folder(part.machine) for part in share.parts):
            order = replace(order, settings=replace(order.settings, folder=remote_folder(self.options) / "trials"))
        return RemoteTrial(order, share, OnHosts(self._machines, self._settings.folder), attempts, HELLO_S)


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(Fault(where="executor hosts", field="hostfile", value=str(path), rule=f"cannot be read: {reason}")) from error


__all__ = ["HostsExecutor"]
