"""The service: what it answers, who may call, and what broken or hostile clients cannot do."""

from __future__ import annotations

import random
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

grpc = pytest.importorskip("grpc", reason="the service needs the extra `control`")

from _file_scheduler import START, FileScheduler  # noqa: E402
from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: E402

from autosched.control.controller import Controller  # noqa: E402
from autosched.control.settings import ServiceBlock, build_settings  # noqa: E402
from autosched.events import JobEvent  # noqa: E402
from autosched.service.access import Rates, Tokens, is_loopback  # noqa: E402
from autosched.service.client import ControlClient, ServiceError  # noqa: E402
from autosched.service.metrics import MetricsServer, exposition  # noqa: E402
from autosched.service.server import WATCHERS, ControlServer  # noqa: E402
from autoscout.core.clock import VirtualClock  # noqa: E402
from autoscout.core.errors import ConfigError, Fault, StoreError  # noqa: E402

TOKEN, READER = "operator-token-0123456789", "reader-token-0123456789"


def controller_in(folder: Path, mode: str = "apply") -> Controller:
    settings = build_settings({"cluster": "lab", "live": {"kind": "file"}, "folder": str(folder), "mode": mode, "watch": 0}, "test")
    made = Controller(settings, FileScheduler(folder / "settings.json"))
    made.tick()
    return made


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    made = controller_in(tmp_path)
    yield made
    made.close()


@pytest.fixture
def serve(controller: Controller) -> Iterator[Any]:
    running = []

    def start(**about: Any) -> ControlServer:
        server = ControlServer(controller, ServiceBlock(**{"address": "127.0.0.1:0", "per_second": 1_000.0, **about}))
        server.start()
        running.append(server)
        return server

    yield start
    for server in running:
        server.stop()


def client(server: ControlServer, **more: Any) -> ControlClient:
    return ControlClient(f"127.0.0.1:{server.port}", **more)


def tokens_in(folder: Path) -> str:
    path = folder / "tokens"
    path.write_text(f"# who may call\nann operator {TOKEN}\nbob reader {READER}\n")
    path.chmod(0o600)
    return str(path)


def test_the_life_of_a_change(serve: Any, controller: Controller) -> None:
    with client(serve()) as control:
        assert control.health().healthy
        assert control.health().settings == START
        proposed = control.propose({"priority_weight_job_size": 100})
        assert proposed.state == "proposed"
        assert control.approve(proposed.id).state == "approved"
        controller.tick()
        assert control.health().settings["priority_weight_job_size"] == 100
        assert [entry.state for entry in control.history()] == ["same", "applied"]
        assert "priority_weight_job_size 0 -> 100" in control.explain(proposed.id)
        undo = control.roll_back(proposed.id)
        controller.tick()
        assert [entry.state for entry in control.history()][1:] == ["undone", "kept"]
        assert undo.kind == "rollback"
        direct = control.apply({"priority_weight_age": 10})
        controller.tick()
        assert control.history()[-1].id == direct.id
        assert control.history()[-1].state == "applied"
        events = [line.event for line in control.watch(follow=False)]
        assert events.count("applied") == 3
        assert dict(control.what_if("priority_weight_age"))


def test_watching_sees_lines_as_they_come(serve: Any, controller: Controller) -> None:
    with client(serve()) as control:
        last = list(control.watch(follow=False))[-1].number
        lines = control.watch(after=last)
        controller.ledger.note(0.0, "hello", "there")
        assert next(lines).words == "there"


def test_observing_controllers_take_no_requests(tmp_path: Path) -> None:
    made = controller_in(tmp_path, "observe")
    server = ControlServer(made, ServiceBlock(address="127.0.0.1:0"))
    server.start()
    with client(server) as control, pytest.raises(ServiceError, match="observes and changes nothing") as caught:
        control.apply({"priority_weight_age": 10})
    assert caught.value.code == "INVALID_ARGUMENT"
    server.stop()
    made.close()


def test_tokens_and_roles(serve: Any, tmp_path: Path) -> None:
    server = serve(tokens=tokens_in(tmp_path))
    for token in ("", "wrong-token-0123456789", TOKEN[:-1], "\u00e9"):
        with client(server, token=token) if token.isascii() else client(server) as nobody, pytest.raises(ServiceError) as caught:
            nobody.health()
        assert caught.value.code == "UNAUTHENTICATED"
    with client(server, token=READER) as reader:
        assert reader.health().healthy
        with pytest.raises(ServiceError, match="reader may not call Apply") as caught:
            reader.apply({"priority_weight_age": 10})
        assert caught.value.code == "PERMISSION_DENIED"
        with pytest.raises(ServiceError):
            reader.record([JobEvent(job="x", kind="submit", at_s=1.0)])
    with client(server, token=TOKEN) as operator:
        assert operator.propose({"priority_weight_age": 10}).by == "ann"


def test_files_of_tokens_name_all_faults_and_no_token(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("ann operator short\nann king 0123456789abcdef0\njust-this-secret\n")
    path.chmod(0o644)
    with pytest.raises(ConfigError) as caught:
        Tokens.read(path)
    assert len(caught.value.faults) == 4
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "example.org:1"])
def test_other_machines_need_tokens_and_tls(controller: Controller, address: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ControlServer(controller, ServiceBlock(address=address))
    assert {fault.field for fault in caught.value.faults} == {"tokens", "certificate"}
    assert not is_loopback(address)


def test_an_address_that_is_taken(serve: Any, controller: Controller) -> None:
    port = serve().port
    with pytest.raises(ConfigError, match="cannot be used"):
        ControlServer(controller, ServiceBlock(address=f"127.0.0.1:{port}"))


def certificate_in(folder: Path, name: str) -> tuple[Path, Path]:
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
               "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("no openssl to make a certificate with")
    return key, certificate


def test_tls(serve: Any, tmp_path: Path) -> None:
    key, certificate = certificate_in(tmp_path, "server")
    _, other = certificate_in(tmp_path, "other")
    server = serve(certificate=str(certificate), key=str(key))
    with client(server, certificate=certificate.read_bytes()) as control:
        assert control.health().healthy
    for wrong in ({"certificate": other.read_bytes()}, {}):
        with client(server, timeout_s=3.0, **wrong) as control, pytest.raises(ServiceError) as caught:
            control.health()
        assert caught.value.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
    with pytest.raises(ConfigError, match="certificate and key"):
        serve(certificate=str(certificate))
    with pytest.raises(ConfigError, match="does not go with the key"):
        serve(certificate=str(other), key=str(key))
    with pytest.raises(ConfigError, match="does not go with the key"):
        serve(certificate=str(key), key=str(key))


def test_huge_and_malformed_messages(serve: Any) -> None:
    server = serve(most_bytes=100_000)
    with client(server) as control:
        with pytest.raises(ServiceError) as caught:
            control.propose({"priority_weight_age": "9" * 1_000_000})
        assert caught.value.code == "RESOURCE_EXHAUSTED"
        with pytest.raises(ServiceError) as caught:
            control.propose({"x" * 10_000: 1})
        assert caught.value.code == "INVALID_ARGUMENT"
        assert len(str(caught.value)) < 5_000
        for number in (-1, 0, 2**62):
            with pytest.raises(ServiceError, match="no such decision"):
                control.explain(number)
        with pytest.raises(ServiceError, match="must be 0 to"):
            control.history(most=2_000_000)
        raw = control._channel.unary_unary("/autoscout.control.v1.Control/Approve")
        for size in (1, 10, 1_000):
            with pytest.raises(grpc.RpcError) as broken:
                raw(random.Random(size).randbytes(size), timeout=10)
            assert broken.value.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.INVALID_ARGUMENT)
        assert control.health().healthy, "and it still answers"


def test_events_through_the_service(serve: Any, controller: Controller) -> None:
    jobs = [JobEvent(job=f"job-{number}", kind="submit", at_s=float(number), attributes={"gpus": 1.0}) for number in range(2_000)]
    mixed = [*jobs, *jobs[:500]]
    random.Random(2).shuffle(mixed)
    with client(serve()) as control:
        added = control.record(mixed)
        assert (added.new, added.known) == (2_000, 500)
        with pytest.raises(ServiceError, match="at_s"):
            control.record([JobEvent(job="odd", kind="submit", at_s=float("inf"))])
        huge = JobEvent(job="huge", kind="submit", at_s=1.0, attributes={"gpus": 5_000.0})
        assert control.record([huge]).new == 1, "a job larger than the cluster is kept; no future holds it"
    assert len(controller.repository.jobs("lab").jobs) == 2_001


def test_calls_are_limited_per_caller(serve: Any) -> None:
    with client(serve(per_second=2.0)) as control:
        codes = []
        for _ in range(12):
            try:
                control.health()
                codes.append("OK")
            except ServiceError as error:
                codes.append(error.code)
        assert codes[0] == "OK"
        assert "RESOURCE_EXHAUSTED" in codes


def test_rates_recover_and_forget() -> None:
    clock = VirtualClock()
    rates = Rates(per_second=1.0, clock=clock)
    assert [rates.admit("a") for _ in range(4)] == [True, True, False, False]
    assert rates.admit("b")
    clock.sleep(1.0)
    assert rates.admit("a")
    for number in range(5_000):
        rates.admit(str(number))
    assert len(rates._left) <= 1_000


def test_clients_that_never_read_do_not_stop_the_others(serve: Any, controller: Controller) -> None:
    for _ in range(300):
        controller.ledger.note(0.0, "noise", "x" * 10_000)
    server = serve()
    stuck = [client(server) for _ in range(WATCHERS)]
    streams = [each._stubs["Watch"](_watch()) for each in stuck]
    for stream in streams:
        next(iter(stream))  # begun, and then left alone
    with client(server, timeout_s=10.0) as control:
        assert control.health().healthy
        with pytest.raises(ServiceError) as caught:
            list(control.watch(follow=False))
        assert caught.value.code == "RESOURCE_EXHAUSTED"
        assert threading.active_count() < 100
    for each in stuck:
        each.close()


def _watch() -> Any:
    from autosched.service.v1 import control_pb2

    return control_pb2.WatchRequest(follow=True)


def test_standard_health_service(serve: Any, controller: Controller) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    server = serve()
    live = controller.live
    assert isinstance(live, FileScheduler)
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        assert stub.Check(health_pb2.HealthCheckRequest(), timeout=10).status == health_pb2.HealthCheckResponse.SERVING
        live.down = True
        controller.tick()
        server.tell_health()
        assert stub.Check(health_pb2.HealthCheckRequest(), timeout=10).status == health_pb2.HealthCheckResponse.NOT_SERVING


def test_metrics_of_a_store_that_does_not_answer(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise StoreError(Fault(where="store", rule="went away"))

    server = MetricsServer(controller, "[::1]:0" if socket.has_dualstack_ipv6() else "127.0.0.1:0")
    server.start()
    monkeypatch.setattr(controller.ledger, "history", gone)
    host = "[::1]" if socket.has_dualstack_ipv6() else "127.0.0.1"
    with pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(f"http://{host}:{server.port}/metrics", timeout=10)
    server.stop()


def test_metrics_of_prometheus(controller: Controller, tmp_path: Path) -> None:
    text = exposition(controller)
    assert 'autoscout_control_up{cluster="lab"} 1\n' in text
    assert 'autoscout_control_setting{cluster="lab",knob="priority_weight_age"} 1000\n' in text
    key, certificate = certificate_in(tmp_path, "metrics")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    server = MetricsServer(controller, "127.0.0.1:0", Tokens.read(Path(tokens_in(tmp_path))), tls)
    server.start()
    silent = socket.create_connection(("127.0.0.1", server.port))  # a client that never shakes hands holds up nobody
    trust = ssl.create_default_context(cafile=str(certificate))
    address = f"https://127.0.0.1:{server.port}/metrics"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(address, timeout=10, context=trust)
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {READER}"})
    with urllib.request.urlopen(request, timeout=10, context=trust) as answer:
        assert answer.read().decode() == exposition(controller)
    silent.close()
    server.stop()


def _silent_calls(port: int, count: int, method: str) -> list[Any]:
    """Calls without a token whose message never comes; the first is their channel."""

    def silent() -> Iterator[bytes]:
        threading.Event().wait()
        yield b""

    channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)])
    return [channel, *(channel.stream_unary(method).future(silent(), timeout=60) for _ in range(count))]


@pytest.mark.parametrize("method", ["/autoscout.control.v1.Control/Health", "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"])
def test_callers_without_a_token_cannot_use_up_the_service(serve: Any, tmp_path: Path, method: str) -> None:
    server = serve(tokens=tokens_in(tmp_path))
    floods = [_silent_calls(server.port, 16, method) for _ in range(4)]
    try:
        time.sleep(1.0)  # for the headers of all of them
        with client(server, token=TOKEN) as operator:
            for _ in range(20):
                assert operator.health().healthy
    finally:
        for channel, *_ in floods:
            channel.close()


def test_a_probe_needs_no_token(serve: Any, tmp_path: Path) -> None:
    server = serve(tokens=tokens_in(tmp_path))
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for _ in range(10):
            assert stub.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("value", [2**62, -(2**62), True])
def test_values_that_no_knob_has_are_refused_at_once(serve: Any, value: Any) -> None:
    server = serve()
    with client(server) as caller, pytest.raises(ServiceError, match="none of its values"):
        caller.propose({"priority_weight_age": value})


def test_what_if_before_the_first_look_says_so_at_once(tmp_path: Path) -> None:
    settings = build_settings({"cluster": "lab", "live": {"kind": "file"}, "folder": str(tmp_path), "mode": "apply", "watch": 0}, "test")
    controller = Controller(settings, FileScheduler(tmp_path / "settings.json"))
    looks, done = threading.Event(), threading.Event()

    def look() -> None:
        with controller.lock:
            looks.set()
            done.wait(60)

    looking = threading.Thread(target=look)
    looking.start()
    looks.wait(60)
    try:
        with pytest.raises(ConfigError, match="not seen yet"):
            controller.what_if("priority_weight_age")
    finally:
        done.set()
        looking.join()
        controller.close()
