"""A real PostgreSQL server for tests: its own data folder, gone with the process that started it."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

PASSWORD = "secret-of-the-tests"
START_S = 60.0


def missing() -> str:
    """Why there can be no server here; empty when there can."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        return f"POSTGRESQL NOT TESTED: no driver ({error}); pip install 'autoscout[postgres]'"
    if _programs() is None:
        return "POSTGRESQL NOT TESTED: no initdb on PATH or in /usr/lib/postgresql/*/bin; apt-get install postgresql"
    return ""


def _programs() -> Path | None:
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: [len(path.parent.name), path.parent.name], reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists() and (folder / "postgres").exists()), None)


class Server:
    """Runs on a Unix socket (trusted) and on 127.0.0.1 (with a password)."""

    def __init__(self, folder: Path) -> None:
        programs = _programs()
        assert programs is not None, missing()
        self.folder = folder
        self._programs = programs
        self._names = count()
        self._process: subprocess.Popen[bytes] | None = None
        self._identity: dict[str, Any] = {}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            user = _unprivileged()
            os.chown(folder, user.pw_uid, user.pw_gid)
            self._identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        secret = folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        self._run("initdb", "-D", "data", "-U", "scout", "-E", "UTF8", "--locale=C", "--no-sync", "--auth-local=trust",
                  "--auth-host=scram-sha-256", f"--pwfile={secret}")  # fmt: skip

    def start(self) -> None:
        """Start and wait until it answers."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.folder,
            "fsync": "off",  # the machine does not crash in these tests, only processes do
            "max_connections": 60,
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        log = (self.folder / "log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", "data", *options],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 no threads yet
                **self._identity,
            )
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("PostgreSQL did not start:\n" + (self.folder / "log").read_text()[-3000:])
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """End it: SIGQUIT drops everybody at once, SIGINT ends sessions first, SIGKILL is a crash of the postmaster."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_S)
            self._process = None

    def database(self) -> str:
        """The URL of a new, empty database."""
        name = f"test_{next(self._names)}"
        self.execute(f"CREATE DATABASE {name}")
        return f"postgresql://scout@/{name}?host={self.folder}&port={self.port}"

    def execute(self, statement: str, database: str = "postgres") -> list[Any]:
        """Run one statement, outside of a transaction."""
        import psycopg

        with psycopg.connect(f"host={self.folder} port={self.port} user=scout dbname={database}", autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def _answers(self) -> bool:
        import psycopg

        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / program, *arguments], cwd=self.folder, capture_output=True, text=True, check=False, **self._identity
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed:\n{done.stdout}{done.stderr}")


@contextmanager
def running() -> Iterator[Server]:
    """A server that runs until the end of the block."""
    with tempfile.TemporaryDirectory(prefix="autoscout-pg-") as name:  # short: socket paths end at 107 characters
        server = Server(Path(name))
        try:
            server.start()
            yield server
        finally:
            server.stop()


def _unprivileged() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("neither a user `postgres` nor `nobody` to run PostgreSQL as")


def _die_with_parent() -> None:
    set_parent_death_signal = 1
    if hasattr(signal, "SIGRTMIN"):  # Linux only
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGQUIT)
