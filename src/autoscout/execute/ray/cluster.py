"""The connection to Ray: made once per process, watched while it is used, and quiet."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, TextIO, TypeVar, cast

from autoscout.common.machine import machine_cores
from autoscout.core.errors import ClusterError, Fault
from autoscout.core.log import logger
from autoscout.execute.ray.options import RayOptions

LOOK_S = 2.0  # how often the head is asked whether it is there
ANSWER_S = 4.0
GONE_AFTER = 3  # looks in vain: 6 s where the machine refuses, 18 s where it is silent
POLL_S = 0.1
GREETING_S = 15.0
LOOK_IN_VAIN_S = 60.0  # how long Ray's own look at a head may take: most of it is the import of Ray, and it tries for half a minute
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""How a client of gRPC begins (RFC 9113, 3.4)."""
SETTINGS = 4  # type of the frame with which a server answers
GOODBYE_S = 5.0
OURS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # It ends the whole program a minute after it lost its head, in the middle of a report too. The head is watched here.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "3600",
    # Trials that ask for no GPU may still look at what there is, as on the local executor.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Ray's own settings, unless the user has others."""
TOKEN = ".ray/auth_token"  # where Ray keeps the token of its clusters, below the home folder
NOISY_THREADS = ("ray_listen_error_messages", "ray-shutdown")  # the second, ours, prints what Ray held back as a repetition

Answer = TypeVar("Answer")

_lock = threading.Lock()
_users = 0  # executors of this process that use the connection we made
_joined: set[str] = set()  # where Ray took us before: no need to look again, which takes seconds

log = logger(__name__)


class Head:
    """Watches whether the head of a cluster still answers."""

    def __init__(self, address: str) -> None:
        self._address = address.removeprefix("ray://")
        self.gone = threading.Event()
        self._closed = threading.Event()
        if ":" in self._address:
            threading.Thread(target=self._watch, name="ray-head", daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def ask(self, work: Callable[[], Answer]) -> Answer:
        """What Ray answers. Many of its calls never return once the head is gone: they are left behind then, in a thread of their own.

        Raises:
            ClusterError: the head went away first.
        """
        answer = in_thread(work, "ray-call")
        while not wait([answer], timeout=POLL_S).done:
            if self.gone.is_set():
                raise self.error()
        return answer.result()

    def error(self) -> ClusterError:
        return ClusterError(
            Fault(
                where="executor ray",
                field="address",
                value=self._address,
                rule="the head of the Ray cluster does not answer any more",
                fix="Start the cluster again, then run the same command again: it continues where it was",
            )
        )

    def is_gone(self) -> bool:
        """Whether the head is gone; of one that just now does not answer this is known after a few more looks."""
        while not (self.gone.is_set() or self._closed.is_set()) and _refusal(self._address) is not None:
            self.gone.wait(POLL_S)
        return self.gone.is_set()

    def _watch(self) -> None:
        missed = 0
        while not self._closed.wait(LOOK_S):
            missed = 0 if _refusal(self._address) is None else missed + 1
            if missed >= GONE_AFTER:
                log.warning("the head of the Ray cluster at %s does not answer any more", self._address)
                self.gone.set()
                return


def in_thread(work: Callable[[], Answer], name: str) -> Future[Answer]:
    """The answer of some work, in a thread that nobody has to wait for.

    Not for what starts Ray: the kernel ends its daemons with the thread that started them.
    """
    answer: Future[Answer] = Future()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return answer


def join(options: RayOptions) -> tuple[Head, bool]:
    """Start or join Ray, or use the connection this process has; whether it is ours to end.

    Raises:
        ClusterError: it cannot be reached.
    """
    for name, value in OURS.items():
        os.environ.setdefault(name, value)  # before it is imported, which reads some of them
    import ray

    global _users  # noqa: PLW0603 - Ray has one connection per process
    with _lock:
        ours = not (ray.is_initialized() and _users == 0)  # else it is the caller's own and stays as it is
        if ours and _users == 0:
            _start(ray, options)
            sys.stdout = cast(Any, _Quiet(sys.stdout))
        _users += int(ours)
        return Head(options.joins if options.joins.startswith("ray://") else _head_address(ray)), ours


def leave(head: Head) -> None:
    """End the connection with its last user; without waiting for a head that is gone."""
    import ray

    global _users  # noqa: PLW0603
    with _lock:
        _users -= 1
        if _users == 0:
            ending = in_thread(ray.shutdown, NOISY_THREADS[1])
            while not wait([ending], timeout=GOODBYE_S).done:
                if head.gone.is_set():
                    _forget(ray)
                    break
            if isinstance(sys.stdout, _Quiet):
                sys.stdout = sys.stdout.stream


def _forget(ray: Any) -> None:
    """Keep Ray from telling its head that this program ends, or of the error with which it does: nobody would ever answer."""
    atexit.unregister(ray.shutdown)
    hooks = ray._private.worker
    if sys.excepthook is getattr(hooks, "custom_excepthook", None):
        sys.excepthook = hooks.normal_excepthook


class _Quiet:
    """Standard output without Ray's own: threads of it print twenty lines for every worker or machine that is lost."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return len(text) if threading.current_thread().name in NOISY_THREADS else self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _start(ray: Any, options: RayOptions) -> None:
    address = options.joins
    _refuse_strange(address)
    own = {"num_cpus": options.cpus or len(machine_cores()), "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **({"address": address} if address else {"address": "local", **own}))
    except SystemExit as error:
        raise unreachable(address, ConnectionError("Ray ended while it was joined")) from error
    except Exception as error:  # its errors have no common class
        raise unreachable(address, error) from error
    _joined.add(_endpoint(address))


def _refuse_strange(address: str) -> None:
    """Ray fills the terminal, and ends the whole process, where no head answers that takes us; so this looks first."""
    endpoint = _endpoint(address)
    has_look = ":" in endpoint and not address.startswith("ray://")
    error = _refusal(endpoint) or _silence(endpoint)
    if error is None and has_look and endpoint not in _joined:
        error = _look_in_vain(endpoint, by_itself=address == "auto")
    if error is not None:
        raise unreachable(address, error)


def _endpoint(address: str) -> str:
    """Host and port of an address, where they are known."""
    endpoint = address.removeprefix("ray://")
    if endpoint == "auto":
        with contextlib.suppress(OSError):  # where `ray start` leaves the address of its cluster
            endpoint = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir()), "ray", "ray_current_cluster").read_text().strip()
    return endpoint


def _refusal(endpoint: str) -> OSError | None:
    host, colon, port = endpoint.rpartition(":")
    if colon and port.isdigit():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S).close()
        except OSError as error:
            return error
    return None


def _silence(endpoint: str) -> OSError | None:
    """Why what takes connections there is no server of gRPC, which greets each of them at once; Ray would try for minutes."""
    host, colon, port = endpoint.rpartition(":")
    if not (colon and port.isdigit()) or os.environ.get("RAY_USE_TLS", "0") not in ("0", "false"):
        return None
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=GREETING_S) as connection:
            connection.sendall(HELLO)
            header = connection.recv(9)
    except OSError as error:
        return ConnectionError(f"what answers there is no head of a Ray cluster: {error}")
    is_greeting = len(header) == 9 and header[3] == SETTINGS
    return None if is_greeting else ConnectionError("what answers there is no head of a Ray cluster")


def _look_in_vain(endpoint: str, by_itself: bool) -> OSError | None:
    """Why Ray finds no head there; asked in a program of its own, which may say what it likes and be ended.

    Args:
        endpoint: Its address.
        by_itself: Whether Ray found it by itself: then it uses the token there is.
    """
    token = {"RAY_AUTH_MODE": "token"} if by_itself and _has_token() else {}
    program = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", endpoint]
    try:
        done = subprocess.run(program, capture_output=True, text=True, timeout=LOOK_IN_VAIN_S, env=os.environ | token, check=False)
    except (OSError, subprocess.TimeoutExpired):  # a busy machine: Ray's own words will have to do
        return None
    if done.returncode == 0:
        return None
    said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    words = next((line for line in said if "InvalidAuthToken" in line), said[-1] if said else f"exit code {done.returncode}")
    return ConnectionError(words[-300:])


def _head_address(ray: Any) -> str:
    try:
        return str(ray.get_runtime_context().gcs_address)
    except Exception:  # a connection through ray:// does not know
        return ""


def unreachable(address: str, error: Exception) -> ClusterError:
    """No Ray at this address."""
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    return ClusterError(
        Fault(
            where="executor ray",
            field="address",
            value=address or "a Ray started here",
            rule=f"Ray cannot be reached: {reason}",
            fix=f"Check the address with `ray status`{_token_hint()}, or leave it out to start Ray on this machine",
        )
    )


def _token_hint() -> str:
    """Ray itself does not say that a head asked for a token: it sends one to a named address only when it is told to."""
    return "" if not _has_token() else f"; set RAY_AUTH_MODE=token where it was started with the token in ~/{TOKEN}"


def _has_token() -> bool:
    """Whether there is a token of which Ray was not told whether to use it."""
    return not os.environ.get("RAY_AUTH_MODE") and (Path.home() / TOKEN).exists()
