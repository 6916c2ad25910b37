"""The channel to an agent, without a network between them."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoscout.core.launch import Completed, Launch, Resources
from autoscout.execute._shared.allocation import Share
from autoscout.execute._shared.remote.agent import Hello
from autoscout.execute._shared.remote.channel import Channel, Lost, agent_command
from autoscout.execute._shared.remote.messages import BEAT, DONE, Reader, encode
from autoscout.execute._shared.remote.order import LaunchOrder
from autoscout.execute._shared.remote.trial import Attempts, RemoteTrial, rank_environment, with_hostfile
from autoscout.execute._shared.supervisor.client import LaunchSettings

NEVER = threading.Event()


def settings(folder: Path) -> LaunchSettings:
    return LaunchSettings(folder=folder, grace_s=0.5, keep_files="all", log_mb=1, tail_kb=64, output_mb=1)


@pytest.fixture
def channel() -> Iterator[Channel]:
    banner = ["/bin/sh", "-c", 'echo "Welcome to this machine"; exec "$@"', "sh"]
    made = Channel([*banner, *agent_command(sys.executable, 20.0)], os.environ, "here", 20.0)
    yield made
    made.close()


def test_messages_are_found_between_other_lines_and_in_pieces() -> None:
    reader = Reader()
    data = b"Last login: today\n" + encode(DONE, {"a": 1}) + b"motd" + encode(BEAT) + b"\x1eautoscout done broken!\n"
    found = [message for start in range(0, len(data), 7) for message in reader.feed(data[start : start + 7])]
    assert found == [(DONE, {"a": 1}), (BEAT, None)]
    assert "Last login" in reader.noise


def test_an_agent_runs_a_launch_whatever_the_shell_says_first(channel: Channel, tmp_path: Path) -> None:
    hello = channel.hello(NEVER, 60)
    assert hello is not None
    assert hello.cores >= 1
    assert not hello.sees
    channel.begin(LaunchOrder(launch=Launch(argv=("echo here; exit 3",), shell=True), settings=settings(tmp_path)))
    completed = channel.result(NEVER, 0.5, packed=False)
    assert (completed.returncode, completed.stdout) == (3, "here\n")


def test_a_client_that_cannot_connect_says_why() -> None:
    channel = Channel(["/bin/sh", "-c", "echo 'no route to host' >&2; exit 255"], os.environ, "far", 20.0)
    with pytest.raises(Lost, match="no route to host"):
        channel.hello(NEVER, 60)
    channel.close()


def test_what_somebody_else_ends_is_lost_and_not_cancelled(channel: Channel, tmp_path: Path) -> None:
    channel.hello(NEVER, 60)
    channel.begin(
        LaunchOrder(
            launch=Launch(argv=('echo $PPID > "$WHERE/supervisor"; sleep 3600',), shell=True, env={"WHERE": str(tmp_path)}),
            settings=settings(tmp_path),
        )
    )
    while not (tmp_path / "supervisor").exists() or not (tmp_path / "supervisor").read_text().endswith("\n"):
        time.sleep(0.02)
    os.kill(int((tmp_path / "supervisor").read_text()), signal.SIGTERM)
    with pytest.raises(Lost, match="somebody else"):
        channel.result(NEVER, 0.5, packed=False)


def test_machines_of_a_launch_are_told_where_to_meet() -> None:
    told = rank_environment(1, ["a", "b"], 1234, 8)
    assert told["NODE_RANK"] == told["PET_NODE_RANK"] == "1"
    assert (told["MASTER_ADDR"], told["PET_MASTER_PORT"], told["NNODES"]) == ("a", "1234", "2")
    assert with_hostfile(Launch(), ["a", "b"], 8).files["hostfile"] == "a slots=8\nb slots=8\n"
    own = Launch(files={"hostfile": "mine"})
    assert with_hostfile(own, ["a"], 1).files["hostfile"] == "mine", "a launch that brings one keeps it"


class Here:
    """Machines that are this one, of which each takes a while to start."""

    def __init__(self, starts_s: dict[str, float], silence_s: float) -> None:
        self._starts_s = starts_s
        self._silence_s = silence_s

    def take(self, share: Share, stopped: threading.Event) -> tuple[Share, ...]:
        return tuple(Share(machine=name) for name in self._starts_s)

    def open(self, part: Share) -> Channel:
        late = ["/bin/sh", "-c", f'sleep {self._starts_s[part.machine]}; exec "$@"', "sh"]
        return Channel([*late, *agent_command(sys.executable, self._silence_s)], os.environ, part.machine, self._silence_s)

    def address(self, part: Share, hello: Hello) -> str:
        return hello.address

    def ended(self, part: Share, completed: Completed) -> Completed:
        return completed

    def lost(self, part: Share, why: str) -> None:
        raise AssertionError(f"{part.machine} was lost: {why}")

    def give(self) -> None:
        """Nothing to give back."""


@pytest.mark.slow
def test_a_machine_is_not_lost_while_another_one_of_its_launch_starts_slowly(tmp_path: Path) -> None:
    launch = Launch(argv=("echo $NODE_RANK of $NNODES",), shell=True, resources=Resources(nodes=2), name="both")
    order = LaunchOrder(launch=launch, settings=settings(tmp_path))
    done = RemoteTrial(order, Share(), Here({"first": 0.0, "second": 7.0}, 5.0), Attempts(most=1), 60.0).run()
    assert (done.returncode, done.stdout, done.machine) == (0, "0 of 2\n", "first,second"), done.error
