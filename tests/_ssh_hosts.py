"""Hosts that answer to ssh, for tests: real sshd on this machine, each in a network of its own that can be cut."""

from __future__ import annotations

import contextlib
import functools
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from autoscout.common import processes

START_S = 60.0
PORT = 2222
MARK = "AUTOSCOUT_SSH_HOST"
"""Environment variable of everything that runs on a host: how to find it when the host is to die."""

_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def missing() -> str:
    """Why there can be no hosts here; empty when there can."""
    absent = [name for name in ("sshd", "ssh", "ssh-keygen", "rsync", "ip") if shutil.which(name, path=_PATH) is None]
    if absent:
        return f"SSH HOSTS NOT TESTED: no {', '.join(absent)}; apt-get install openssh-server openssh-client rsync iproute2"
    if os.geteuid() != 0:
        return "SSH HOSTS NOT TESTED: only root can give each of them a network of its own"
    probe = f"as{os.getpid()}p"
    result = subprocess.run(["ip", "netns", "add", probe], env={"PATH": _PATH}, capture_output=True, text=True, check=False)
    if result.returncode:
        return f"SSH HOSTS NOT TESTED: no network namespaces: {result.stderr.strip()[:200]}"
    subprocess.run(["ip", "netns", "del", probe], env={"PATH": _PATH}, check=False)
    return ""


class SshHosts:
    """Some hosts. A context manager: no process, network or file outside `folder` is left when the block ends.

    They share the file system and the processors of this machine; their networks, GPU leases and processes are told apart.

    Args:
        folder: For keys, files and logs; made if it is not there.
        count: How many.
    """

    def __init__(self, folder: Path, count: int = 3) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder.resolve()
        block = 10 + os.getpid() % 200  # tests of other processes have networks too
        self.names = tuple(f"10.{block}.{number}.2" for number in range(1, count + 1))
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def ssh(self) -> str:
        """The command with which these hosts are reached."""
        options = {
            "BatchMode": "yes",
            "ConnectTimeout": "5",
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null",
            "LogLevel": "ERROR",
            "IdentitiesOnly": "yes",
        }
        listed = " ".join(f"-o {name}={value}" for name, value in options.items())
        return f"ssh -F none -p {PORT} -i {self.folder}/key -l {getpass.getuser()} {listed}"

    def hostfile(self, slots: int) -> Path:
        """A file that lists them, each with `slots` slots."""
        path = self.folder / f"hosts-{slots}"
        path.write_text("".join(f"{name} slots={slots}\n" for name in self.names))
        return path

    def __enter__(self) -> Self:
        try:
            for name in ("key", "host_key"):
                self._run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name))
            (self.folder / "authorized").write_text((self.folder / "key.pub").read_text())
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd gives up without
            for name in self.names:
                self._connect(name)
                self.start(name)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, name: str) -> None:
        """Start a host, also after it was killed."""
        settings = {
            "ListenAddress": name,
            "Port": PORT,
            "HostKey": self.folder / "host_key",
            "AuthorizedKeysFile": self.folder / "authorized",
            "PidFile": "none",
            "UsePAM": "no",
            "StrictModes": "no",
            "PermitRootLogin": "yes",
            "MaxStartups": 100,
            "SetEnv": f'{MARK}={self.folder}:{name} "AUTOSCOUT_LEASES={self.folder / f"leases-{name}"}" "PATH={_PATH}"',
        }
        (self.folder / f"leases-{name}").mkdir(exist_ok=True)
        configuration = self.folder / f"sshd-{name}"
        configuration.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        inside = ["ip", "netns", "exec", self._network(name), shutil.which("sshd", path=_PATH) or "sshd"]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                [*inside, "-D", "-e", "-f", str(configuration)],
                env={"PATH": _PATH, MARK: f"{self.folder}:{name}"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=functools.partial(processes.die_with_parent, os.getpid()),  # noqa: PLW1509 tests start it before any thread
            )
        deadline_s = time.monotonic() + START_S
        while not _is_up(name):
            if self._daemons[name].poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"sshd on {name} does not answer:\n{(self.folder / f'{name}.log').read_text()[-2000:]}")
            time.sleep(0.05)

    def kill(self, name: str) -> None:
        """End a host as a power cut does: its daemon and all that runs there."""
        daemon = self._daemons.pop(name, None)
        if daemon is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait()
        marked = [pid for pid, value in processes.marked(MARK) if value == f"{self.folder}:{name}"]
        for pid in {*marked, *(child for each in marked for child in processes.descendants(each))}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def cut(self, name: str) -> None:
        """Cut a host off: it runs on, and nobody hears of it; connections stay open."""
        self._run("ip", "link", "set", self._link(name), "down")

    def heal(self, name: str) -> None:
        """Connect it again."""
        self._run("ip", "link", "set", self._link(name), "up")

    def running(self, name: str) -> list[int]:
        """Processes on a host, apart from its daemon and those who log in."""
        marked = [pid for pid, value in processes.marked(MARK) if value == f"{self.folder}:{name}"]
        return [pid for pid in processes.running(marked) if _name(pid) != "sshd"]

    def close(self) -> None:
        """End everything; may be called twice."""
        for name in self.names:
            self.kill(name)
            self._run("ip", "netns", "del", self._network(name), check=False)
            self._run("ip", "link", "del", self._link(name), check=False)

    def _connect(self, name: str) -> None:
        """A network with one wire to it."""
        network, link = self._network(name), self._link(name)
        self._run("ip", "netns", "add", network)
        self._run("ip", "link", "add", link, "type", "veth", "peer", "name", "wire", "netns", network)
        self._run("ip", "addr", "add", f"{name.rpartition('.')[0]}.1/24", "dev", link)
        self._run("ip", "link", "set", link, "up")
        Path(f"/proc/sys/net/ipv4/conf/{link}/forwarding").write_text("1")  # so that hosts reach each other; gone with the link
        inside = ("ip", "-n", network)
        self._run(*inside, "link", "set", "lo", "up")
        self._run(*inside, "addr", "add", f"{name}/24", "dev", "wire")
        self._run(*inside, "link", "set", "wire", "up")
        self._run(*inside, "route", "add", "default", "via", f"{name.rpartition('.')[0]}.1")

    def _network(self, name: str) -> str:
        return f"as{os.getpid()}-{name.split('.')[2]}"

    def _link(self, name: str) -> str:
        return f"as{os.getpid()}v{name.split('.')[2]}"[:15]

    def _run(self, *command: str, check: bool = True) -> None:
        done = subprocess.run(command, env={"PATH": _PATH}, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def _is_up(name: str) -> bool:
    try:
        socket.create_connection((name, PORT), timeout=1.0).close()
    except OSError:
        return False
    return True


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "sshd"  # gone meanwhile
