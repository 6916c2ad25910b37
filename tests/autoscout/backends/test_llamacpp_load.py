"""The clients: metrics worked out by hand, and answers that are not what was asked for."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from autoscout.backends.llamacpp.load import Answer, Refused, WrongAnswer, ask, run_load, summary
from autoscout.backends.llamacpp.probe import divergence
from autoscout.backends.llamacpp.workload import METRICS
from autoscout.core.clock import RealClock, VirtualClock


def piece(text: str = "word", **more: Any) -> dict[str, Any]:
    return {"choices": [{"text": text}], **more}


def last(output: int, prompt: int = 4, read: int | None = None) -> dict[str, Any]:
    return piece("", usage={"completion_tokens": output, "prompt_tokens": prompt}, timings={"prompt_n": prompt if read is None else read})


class Script:
    """A server that says its lines at given times; the engine itself cannot be made to answer at known moments."""

    def __init__(self, clock: VirtualClock, lines: list[tuple[float, dict[str, Any]]]) -> None:
        self.clock, self.lines, self.requests = clock, lines, []

    def stream(self, request: Mapping[str, Any], callback: Callable[[str], object]) -> None:
        self.requests.append(request)
        for wait_s, line in self.lines:
            self.clock.sleep(wait_s)
            callback(json.dumps(line))


def answer_to(*lines: tuple[float, dict[str, Any]], prompt: int = 4, output: int = 3) -> Answer:
    clock = VirtualClock(5.0)
    return ask(Script(clock, list(lines)), clock, list(range(prompt)), output)


def test_times_of_one_answer() -> None:
    done = answer_to((0.5, piece()), (0.1, piece()), (0.3, piece()), (9.0, last(3)))
    assert done.ttft_s == pytest.approx(0.5)
    assert done.e2el_s == pytest.approx(0.9), "to the last token, not to the closing line"
    assert done.gaps_s == pytest.approx((0.1, 0.3))
    assert done.tpot_s == pytest.approx(0.2)


def test_two_tokens_in_one_piece() -> None:
    done = answer_to((0.5, piece()), (0.4, piece("two words")), (0.0, last(3)))
    assert done.gaps_s == pytest.approx((0.4,))
    assert done.tpot_s == pytest.approx(0.2), "per token, however they were cut into pieces"


def test_what_is_sent() -> None:
    clock = VirtualClock()
    server = Script(clock, [(0.1, piece()), (0.1, last(2))])
    ask(server, clock, [7, 8, 9, 10], 2)
    (request,) = server.requests
    assert request["prompt"] == [7, 8, 9, 10]
    assert request["cache_prompt"] is False, "no warm cache"
    assert request["ignore_eos"] is True, "the same work for every configuration"


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([(0.1, piece()), (0.1, last(2))], "asked for 3 tokens, got 2"),
        ([(0.1, piece())], "got 0"),
        ([], "got 0"),
        ([(0.1, piece("\ufffd")), (0.1, last(3))], "no readable text"),
        ([(0.1, last(3))], "no readable text"),
        ([(0.1, piece()), (0.1, last(3, read=1))], "came from a cache"),
        ([(0.1, piece()), (0.1, last(3, prompt=2))], "only 2 of 4"),
    ],
)
def test_wrong_answers(lines: list[tuple[float, dict[str, Any]]], why: str) -> None:
    with pytest.raises(WrongAnswer, match=why):
        answer_to(*lines)


def test_a_refusal_keeps_its_code() -> None:
    with pytest.raises(Refused, match="too long") as caught:
        answer_to((0.1, {"error": {"code": 400, "message": "too long"}}))
    assert caught.value.code == 400


def test_metrics_of_a_repeat() -> None:
    answers = [
        Answer(ttft_s=0.1, e2el_s=0.5, gaps_s=(0.1, 0.3), prompt_tokens=10, output_tokens=3),
        Answer(ttft_s=0.3, e2el_s=0.9, gaps_s=(0.2, 0.4), prompt_tokens=10, output_tokens=3),
    ]
    found = summary(answers, duration_s=2.0)
    expected = {
        "output_throughput": 3.0,
        "total_token_throughput": 13.0,
        "request_throughput": 1.0,
        "mean_ttft_ms": 200.0,
        "median_ttft_ms": 200.0,
        "p95_ttft_ms": 290.0,
        "p99_ttft_ms": 298.0,
        "mean_tpot_ms": 250.0,
        "mean_itl_ms": 250.0,
        "median_itl_ms": 250.0,
        "p95_itl_ms": 385.0,
        "mean_e2el_ms": 700.0,
        "p95_e2el_ms": 880.0,
    }
    for name, value in expected.items():
        assert found[name] == pytest.approx(value), name
    assert set(found) == set(METRICS) - {"peak_mem_gib", "start_s", "divergence"}


class Counting:
    """A server that knows how many requests it holds at once."""

    def __init__(self, failing: int = -1) -> None:
        self.lock, self.now, self.most, self.served, self.failing = threading.Lock(), 0, 0, 0, failing
        self.full = threading.Barrier(3)

    def stream(self, request: Mapping[str, Any], callback: Callable[[str], object]) -> None:
        with self.lock:
            self.now, self.served = self.now + 1, self.served + 1
            self.most, number = max(self.most, self.now), self.served
        if number <= 3:
            self.full.wait(60)
        callback(json.dumps({"error": {"code": 500, "message": "broke"}} if number == self.failing else piece()))
        callback(json.dumps(last(2)))
        with self.lock:
            self.now -= 1


def test_so_many_clients_ask_at_once() -> None:
    server = Counting()
    found = run_load(server, RealClock(), [[1, 2, 3, 4]] * 20, 2, clients=3)
    assert (server.most, server.served) == (3, 20)
    assert found["output_throughput"] == pytest.approx(2 * found["request_throughput"])


def test_one_failure_ends_the_load() -> None:
    server = Counting(failing=4)
    with pytest.raises(Refused, match="broke"):
        run_load(server, RealClock(), [[1, 2, 3, 4]] * 1000, 2, clients=3)
    assert server.served < 1000


def test_divergence_by_hand() -> None:
    half = {"1": -0.6931471805599453, "2": -0.6931471805599453}
    assert divergence([half], [half]) == pytest.approx(0.0, abs=1e-6)
    # p = (1/2, 1/2), q = (1/4, 3/4): 0.5 ln 2 + 0.5 ln(2/3)
    skew = {"1": -1.3862943611198906, "2": -0.2876820724517809}
    assert divergence([half], [skew]) == pytest.approx(0.14384103622589045, rel=1e-6)
    assert divergence([half, half], [skew, half]) == pytest.approx(0.0719205, rel=1e-4), "the mean over prompts"
    assert divergence([half], [{"8": -0.01, "9": -9.0}]) > 1.0, "other words altogether"
    assert divergence([half], []) == float("inf")


def test_a_crawling_engine_gets_fewer_requests() -> None:
    clock = VirtualClock()
    served: list[str] = []

    class Crawls:
        def stream(self, request: Mapping[str, Any], callback: Callable[[str], object]) -> None:
            clock.sleep(4.0)
            served.append(str(request))
            piece = {"choices": [{"text": "a"}], "usage": {"completion_tokens": 2, "prompt_tokens": 3}}
            callback(json.dumps({"choices": [{"text": "b"}]}))
            callback(json.dumps(piece))

    found = run_load(Crawls(), clock, [[1, 2, 3]] * 50, 2, clients=1, enough_s=10.0)
    assert len(served) == 3, "the third begins at 8 s, no fourth at 12 s"
    assert found["completed"] == 3
    assert found["output_throughput"] == 6 / 12


class Stuck:
    """A server that answers its first requests and then no more."""

    def __init__(self, answers: int) -> None:
        self.left, self.ended = answers, threading.Event()

    def stream(self, request: Mapping[str, Any], callback: Callable[[str], object]) -> None:
        self.left -= 1
        if self.left < 0:
            self.ended.wait(60.0)
        callback(json.dumps(piece()))
        callback(json.dumps(last(2)))


def test_a_load_ends_as_soon_as_it_may() -> None:
    server = Stuck(answers=3)
    seen: list[dict[str, float]] = []

    def over(best: dict[str, float]) -> bool:
        seen.append(best)
        return len(seen) == 3

    found = run_load(server, RealClock(), [[1, 2, 3, 4]] * 8, 2, clients=2, over=over)
    server.ended.set()
    assert found["completed"] == 3
    rates = [best["output_throughput"] for best in seen]
    assert rates == sorted(rates, reverse=True), "the best it can reach only falls"
    assert found["output_throughput"] < rates[-1]
    assert seen[0]["total_token_throughput"] == pytest.approx(3 * rates[0])
    assert seen[0]["p95_ttft_ms"] <= seen[0]["p99_ttft_ms"]
