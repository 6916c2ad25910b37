"""What can be said of the Ray executor without Ray."""

from __future__ import annotations

import io
import socket
import threading

import pytest

from autoscout.core.errors import ClusterError, ConfigError
from autoscout.execute.ray.cluster import NOISY_THREADS, Head, _Quiet, _refuse_strange
from autoscout.execute.ray.options import RayOptions


def test_the_address_is_the_option_or_rays_own_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert RayOptions().joins == ""
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.7:6379")
    assert RayOptions().joins == "10.0.0.7:6379"
    assert RayOptions(address="auto").joins == "auto"
    assert RayOptions(address="local").joins == "", "a Ray of our own, whatever the variable says"
    with pytest.raises(ConfigError, match="for a Ray started here"):
        RayOptions(cpus=4)


def test_what_ray_prints_on_its_own_is_left_out_and_the_rest_is_not() -> None:
    stream = io.StringIO()
    quiet = _Quiet(stream)  # type: ignore[arg-type]
    for name in NOISY_THREADS:
        noisy = threading.Thread(target=lambda: quiet.write("(raylet) a worker died ...\n"), name=name)
        noisy.start()
        noisy.join()
    quiet.write("ours\n")
    quiet.flush()
    assert stream.getvalue() == "ours\n"


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_an_address_at_which_nobody_answers_is_refused(address: str) -> None:
    with pytest.raises(ClusterError, match="Ray cannot be reached"):
        _refuse_strange(address)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["silent", "talks"])
def test_something_else_at_an_address_is_refused_without_ray(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself fills the terminal for minutes, and ends the program then."""
    monkeypatch.setattr("autoscout.execute.ray.cluster.GREETING_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for _ in range(2):
                connection, _ = listener.accept()
                connections.append(connection)
                connection.sendall(answer)

        connections: list[socket.socket] = []
        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(ClusterError, match="what answers there is no head of a Ray cluster"):
            _refuse_strange(f"127.0.0.1:{listener.getsockname()[1]}")
        for connection in connections:
            connection.close()


def test_a_question_to_a_head_that_goes_away_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoscout.execute.ray.cluster.LOOK_S", 0.01)
    never = threading.Event()
    head = Head("127.0.0.1:1")
    assert head.is_gone()
    with pytest.raises(ClusterError, match="does not answer any more"):
        head.ask(never.wait)
    never.set()
    head.close()


def test_a_question_is_answered_also_by_its_error() -> None:
    head = Head("")
    assert head.ask(lambda: 7) == 7
    with pytest.raises(KeyError):
        head.ask(lambda: {}["x"])
    head.close()


def test_a_head_that_does_not_answer_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoscout.execute.ray.cluster.LOOK_S", 0.01)
    head = Head("127.0.0.1:1")
    assert head.gone.wait(30)
    assert "does not answer any more" in str(head.error())
    head.close()
