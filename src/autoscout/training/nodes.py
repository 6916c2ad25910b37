"""The machines of one training run: the first leads, and hears from the others what their processes report. Standard library only.

The trial program runs on every machine. The first one measures: it tells the others when to start their processes, with which
configuration and when to end them, and they send every line that their processes report. Lines are JSON; nothing that arrives is run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from autoscout.core.clock import RealClock

MEET_S = 300.0  # between the first machine that is there and the last
RETRY_S = 0.2
PINGS = 5  # questions for the time of another machine; the quickest answer counts
_INTERFACE_ADDRESS = 0x8915  # SIOCGIFADDR of Linux
CLOCK = RealClock()


@dataclass(frozen=True, kw_only=True)
class Place:
    """Which of the machines this is, and where the first one is reached."""

    rank: int
    count: int
    address: str
    port: int

    @classmethod
    def here(cls, count: int) -> Place:
        """As the executor, or whoever starts the program on every machine, says.

        Raises:
            ValueError: nobody says it.
        """
        try:
            rank, address, port = (os.environ[name] for name in ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT"))
        except KeyError as error:
            raise ValueError(f"{count} machines train together, and ${error.args[0]} does not say which of them this is") from error
        return cls(rank=int(rank), count=count, address=address, port=int(port))


class NodeLostError(OSError):
    """Another machine of the run is not there, or not any more."""


class Line:
    """A connection that carries one JSON object a line."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._rest = b""
        self.open = True

    def say(self, message: Mapping[str, Any]) -> None:
        """Send; a connection that is closed is noticed where it is read."""
        with contextlib.suppress(OSError):
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def hear(self, wait_s: float = 0.0) -> list[dict[str, Any]]:
        """What has arrived, after waiting for something at most so long; `open` is False once the other end is gone."""
        self._socket.settimeout(max(wait_s, 1e-3))
        try:
            data = self._socket.recv(1 << 16)
            self.open = bool(data)
        except TimeoutError:
            return []
        except OSError:
            self.open = False
            return []
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in whole]

    def expect(self, name: str) -> dict[str, Any]:
        """The next message, which must have this name.

        Raises:
            NodeLostError: it does not come.
        """
        deadline_s = CLOCK.span_s() + MEET_S
        while self.open and CLOCK.span_s() < deadline_s:
            for message in self.hear(RETRY_S):
                if name in message:
                    return message
        raise NodeLostError(f"another machine of this run said no {name}")

    @property
    def interface(self) -> str:
        """Name of the network interface of our end; empty where the system does not say."""
        return interface_of(str(self._socket.getsockname()[0]))

    def close(self) -> None:
        self._socket.close()


class Followers:
    """The other machines, as the first one sees them: all of them, or `NodeLostError` after `MEET_S`."""

    def __init__(self, place: Place, token: str) -> None:
        self.count = place.count
        self.lines: dict[int, Line] = {}
        self.ended: set[int] = set()  # machines whose processes have all ended
        self.failed: dict[int, tuple[int, int, str]] = {}  # rank, exit code and log of a process that failed, by machine
        self._offsets_s: dict[int, float] = {}
        deadline_s = CLOCK.span_s() + MEET_S
        with socket.create_server(("", place.port), backlog=place.count) as server:
            while len(self.lines) < place.count - 1:
                server.settimeout(max(0.1, deadline_s - CLOCK.span_s()))
                try:
                    connection, _ = server.accept()
                except TimeoutError as error:
                    raise NodeLostError(f"{len(self.lines) + 1} of {place.count} machines are there after {MEET_S:g} s") from error
                self._greet(Line(connection), token)

    def _greet(self, line: Line, token: str) -> None:
        hello = line.expect("hello")
        if hello["hello"] != token:
            line.close()  # of another run
            return
        node = int(hello["node"])
        self.lines[node] = line
        offsets_s: list[tuple[float, float]] = []
        for _ in range(PINGS):
            asked_s = CLOCK.span_s()
            line.say({"clock": True})
            theirs_s = float(line.expect("clock")["clock"])
            answered_s = CLOCK.span_s()
            offsets_s.append((answered_s - asked_s, (asked_s + answered_s) / 2 - theirs_s))
        self._offsets_s[node] = min(offsets_s)[1]

    def tell(self, **order: Any) -> None:
        """Say something to all."""
        for line in self.lines.values():
            line.say(order)

    def start(self, trial: Mapping[str, Any], port: int) -> None:
        """Have all start their processes, which meet at a port of this machine."""
        self.ended, self.failed = set(), {}
        self.tell(start={name: trial[name] for name in ("env", "config")}, port=port)

    def reports(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """What processes there have reported since the last time, by machine and file, in the time of this machine.

        Raises:
            NodeLostError: a machine has gone away.
        """
        for node, line in self.lines.items():
            for message in line.hear():
                if "report" in message:
                    report = dict(message["report"])
                    report["at_s"] = float(report["at_s"]) + self._offsets_s[node]
                    yield f"node{node}/{message['file']}", report
                elif "failed" in message:
                    rank, code = message["failed"]
                    self.failed[node] = int(rank), int(code), str(message["log"])
                elif "ended" in message:
                    self.ended.add(node)
            if not line.open:
                raise NodeLostError(f"machine {node} of the run has gone away")

    @property
    def have_ended(self) -> bool:
        return len(self.ended) == len(self.lines)

    @property
    def interface(self) -> str:
        return next((line.interface for line in self.lines.values()), "")

    def close(self) -> None:
        for line in self.lines.values():
            line.close()


def connect(place: Place, token: str) -> Line:
    """The way to the first machine.

    Raises:
        NodeLostError: it is not there within `MEET_S`.
    """
    deadline_s = CLOCK.span_s() + MEET_S
    while True:
        try:
            line = Line(socket.create_connection((place.address, place.port), timeout=RETRY_S * 10))
            break
        except OSError as error:
            if CLOCK.span_s() > deadline_s:
                raise NodeLostError(f"the first machine of the run, {place.address}:{place.port}, cannot be reached: {error}") from error
            CLOCK.sleep(RETRY_S)
    line.say({"hello": token, "node": place.rank})
    for _ in range(PINGS):
        line.expect("clock")
        line.say({"clock": CLOCK.span_s()})
    return line


def run_token(text: str) -> str:
    """Tells the machines of one run from those of another that meets at the same port."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def interface_of(address: str) -> str:
    """The network interface that has an IPv4 address; empty where nobody knows."""
    try:
        import fcntl

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            for _, name in socket.if_nameindex():
                with contextlib.suppress(OSError):
                    packed = fcntl.ioctl(probe.fileno(), _INTERFACE_ADDRESS, struct.pack("256s", name.encode()[:15]))
                    if socket.inet_ntoa(packed[20:24]) == address:
                        return name
    except (ImportError, OSError):  # no Linux
        pass
    return ""


def node_environment(place: Place, local: int, port: int) -> dict[str, str]:
    """What the processes of this machine are told of the others: in plain words, and in those that torchrun reads by itself."""
    variables = {
        "NNODES": place.count,
        "NODE_RANK": place.rank,
        "NPROC_PER_NODE": local,
        "MASTER_ADDR": place.address,
        "MASTER_PORT": port,
    }
    return {name: str(value) for key, value in variables.items() for name in (key, f"PET_{key}")}
