"""The connection to Ray: made once per process, watched while it is used, and quiet."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, TextIO, cast

from autoscout.common.machine import machine_cores
from autoscout.core.errors import ClusterError, Fault
from autoscout.core.log import logger
from autoscout.execute.ray.options import RayOptions

LOOK_S = 3.0  # how often the head is asked whether it is there
GONE_AFTER = 3  # looks in vain; Ray itself ends the whole program a minute after it lost its head
ANSWER_S = 10.0
NOISY_THREADS = ("ray_listen_error_messages", "ray-shutdown")  # the second, ours, prints what Ray held back as a repetition

_lock = threading.Lock()
_users = 0  # executors of this process that use the connection we made

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

    def _watch(self) -> None:
        missed = 0
        while not self._closed.wait(LOOK_S):
            missed = 0 if _refusal(self._address) is None else missed + 1
            if missed >= GONE_AFTER:
                log.warning("the head of the Ray cluster at %s does not answer any more", self._address)
                self.gone.set()
                return


def join(options: RayOptions) -> tuple[Head, bool]:
    """Start or join Ray, or use the connection this process has; whether it is ours to end.

    Raises:
        ClusterError: it cannot be reached.
    """
    import ray

    global _users  # noqa: PLW0603 - Ray has one connection per process
    with _lock:
        ours = not (ray.is_initialized() and _users == 0)  # else it is the caller's own and stays as it is
        if ours and _users == 0:
            _start(ray, options)
            sys.stdout = cast(Any, _Quiet(sys.stdout))
        _users += int(ours)
        return Head(options.joins if options.joins.startswith("ray://") else _head_address(ray)), ours


def leave(gone: bool) -> None:
    """End the connection with its last user; `gone` when there is nothing to say goodbye to."""
    import ray

    global _users  # noqa: PLW0603
    with _lock:
        _users -= 1
        if _users == 0:
            ending = threading.Thread(target=ray.shutdown, name=NOISY_THREADS[1], daemon=True)
            ending.start()
            ending.join(ANSWER_S if gone else None)
            if isinstance(sys.stdout, _Quiet):
                sys.stdout = sys.stdout.stream


class _Quiet:
    """Standard output without Ray's own: threads of it print twenty lines for every worker or machine that is lost."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return len(text) if threading.current_thread().name in NOISY_THREADS else self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _start(ray: Any, options: RayOptions) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Trials that ask for no GPU may still look at what there is, as on the local executor.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    address = options.joins
    _refuse_silent(address)
    own = {"num_cpus": options.cpus or len(machine_cores()), "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **({"address": address} if address else {"address": "local", **own}))
    except SystemExit as error:
        raise unreachable(address, ConnectionError("Ray ended while it was joined")) from error
    except Exception as error:  # its errors have no common class
        raise unreachable(address, error) from error


def _refuse_silent(address: str) -> None:
    """Ray ends the whole process when nothing answers at an address, so this looks first."""
    endpoint = address.removeprefix("ray://")
    if endpoint == "auto":
        with contextlib.suppress(OSError):  # where `ray start` leaves the address of its cluster
            endpoint = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir()), "ray", "ray_current_cluster").read_text().strip()
    error = _refusal(endpoint)
    if error is not None:
        raise unreachable(address, error)


def _refusal(endpoint: str) -> OSError | None:
    host, colon, port = endpoint.rpartition(":")
    if colon and port.isdigit():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S).close()
        except OSError as error:
            return error
    return None


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
            fix="Check the address with `ray status`, or leave it out to start Ray on this machine",
        )
    )
