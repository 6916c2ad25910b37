"""Traffic is read from what servers, gateways and traces have, and comes out as it was put in."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from traffic_pages import lengths, llamacpp_page, sglang_page, vllm_page

from autoscout.core.clock import VirtualClock
from autoscout.core.errors import ConfigError
from autoscout.traffic.description import Traffic, TrafficWindow, described
from autoscout.traffic.lengths import Even
from autoscout.traffic.read import read_traffic
from autoscout.traffic.words import picture, sentence

INPUTS, OUTPUTS = lengths(4000, 900, 0.8, 1), lengths(4000, 70, 1.0, 2)


def drawn(window: TrafficWindow, count: int = 4000) -> np.ndarray:
    even = Even(np.random.default_rng(0))
    return np.array([window.draw(even) for _ in range(count)], dtype=float)


def is_like(window: TrafficWindow, *, mean: float = 0.03, quantile: float = 0.35) -> None:
    """Draws have the means of the requests, and their quantiles as far as buckets tell."""
    pairs = drawn(window)
    for column, values in enumerate((INPUTS, OUTPUTS)):
        assert pairs[:, column].mean() == pytest.approx(np.mean(values), rel=mean)
        for part in (0.25, 0.5, 0.9, 0.95):
            assert np.quantile(pairs[:, column], part) == pytest.approx(np.quantile(values, part), rel=quantile)


@pytest.mark.parametrize(("version", "share"), [("0.6", None), ("0.8", 0.3), ("0.24", 0.3)])
def test_page_of_vllm(tmp_path: Path, version: str, share: float | None) -> None:
    path = tmp_path / "metrics.txt"
    path.write_text(vllm_page(INPUTS, OUTPUTS, version=version, hits=0.3))
    (window,) = read_traffic(str(path)).windows
    is_like(window)
    assert window.requests == 4000
    assert window.prefix_share == (None if share is None else pytest.approx(share))


def test_page_of_sglang(tmp_path: Path) -> None:
    path = tmp_path / "metrics.txt"
    path.write_text(sglang_page(INPUTS, OUTPUTS, hits=0.2))
    (window,) = read_traffic(str(path)).windows
    assert drawn(window).mean(axis=0) == pytest.approx([np.mean(INPUTS), np.mean(OUTPUTS)], rel=0.03)
    assert window.prefix_share == pytest.approx(0.2)


def test_sglang_without_histograms_tells_means(tmp_path: Path) -> None:
    path = tmp_path / "metrics.txt"
    path.write_text(sglang_page(INPUTS, OUTPUTS, with_histograms=False))
    (window,) = read_traffic(str(path)).windows
    assert (window.mean_input, window.mean_output) == pytest.approx((np.mean(INPUTS), np.mean(OUTPUTS)))


def test_names_of_a_collector(tmp_path: Path) -> None:
    path = tmp_path / "metrics.txt"
    path.write_text(vllm_page(INPUTS, OUTPUTS).replace("vllm:", "vllm_"))
    is_like(read_traffic(str(path)).windows[0])


def test_two_pages_tell_what_came_between(tmp_path: Path) -> None:
    before, path = vllm_page([5000] * 900, [3] * 900), tmp_path / "metrics.txt"
    path.write_text(before + "# EOF\n" + vllm_page([5000] * 900 + INPUTS, [3] * 900 + OUTPUTS))
    (window,) = read_traffic(str(path)).windows
    assert window.requests == 4000
    is_like(window)


class _Served(BaseHTTPRequestHandler):
    pages: Callable[[str], tuple[int, bytes]]

    def do_GET(self) -> None:
        status, body = type(self).pages(self.path)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def served() -> Iterator[Callable[[Callable[[str], tuple[int, bytes]]], str]]:
    servers = []

    def serve(pages: Callable[[str], tuple[int, bytes]]) -> str:
        handler = type("Handler", (_Served,), {"pages": staticmethod(pages)})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def test_live_page_over_a_while(served: Callable[..., str]) -> None:
    clock, random = VirtualClock(), np.random.default_rng(3)
    arrivals_s = np.cumsum(random.exponential(300 / 3800, size=4000))  # beyond the end

    def page(path: str) -> tuple[int, bytes]:
        assert path == "/metrics"
        count = int((arrivals_s <= clock.span_s()).sum())
        return 200, vllm_page([7] * 50 + INPUTS[:count], [1] * 50 + OUTPUTS[:count]).encode()

    traffic = read_traffic(served(page), 300.0, clock=clock)
    (window,) = traffic.windows
    is_like(window, mean=0.05)
    assert window.rate == pytest.approx(3800 / 300, rel=0.05)
    assert window.gap_variation == pytest.approx(1.0, abs=0.3)  # Poisson
    assert "vLLM" in traffic.source


def test_live_llamacpp_tells_lengths_by_its_growth(served: Callable[..., str]) -> None:
    clock, random = VirtualClock(), np.random.default_rng(3)
    begun_s = np.cumsum(random.exponential(1.0, size=900))
    ended_s = begun_s + random.uniform(0.2, 2.0, size=900)
    inputs, outputs = np.array(INPUTS[:900]), np.array(OUTPUTS[:900])

    def page(path: str) -> tuple[int, bytes]:
        now_s = clock.span_s()
        return 200, llamacpp_page(int(inputs[begun_s <= now_s].sum()), int(outputs[ended_s <= now_s].sum()), cached=0.25).encode()

    (window,) = read_traffic(served(page) + "/metrics", 600.0, clock=clock).windows
    is_like(window, mean=0.12)
    assert window.rate == pytest.approx(1.0, rel=0.12)
    assert window.prefix_share == pytest.approx(0.25, abs=0.02)


def test_busy_llamacpp_is_refused(served: Callable[..., str]) -> None:
    clock = VirtualClock()

    def page(path: str) -> tuple[int, bytes]:
        return 200, llamacpp_page(int(1000 * clock.span_s()), int(100 * clock.span_s())).encode()

    with pytest.raises(ConfigError, match=r"they run together.*access log"):
        read_traffic(served(page), 30.0, clock=clock)
    with pytest.raises(ConfigError, match="--traffic-over"):
        read_traffic(served(page), clock=clock)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<html><body>Sign in</body></html>", "no page of metrics"),
        ("", "no metrics of vLLM, SGLang, llama.cpp"),
        ("python_gc_objects_collected_total 3.0\n", "no metrics of vLLM, SGLang, llama.cpp"),
        ("vllm:num_requests_running 3.0\n", "no request has been answered"),
        (vllm_page([], []), "no request has been answered"),
        (vllm_page([9], [9]).replace(" 1.0", " NaN"), "no request has been answered"),
        (sglang_page([], []), "no request has been answered"),
        ("vllm:request_prompt_tokens_bucket{le=" * 1000, "no page of metrics"),
    ],
)
def test_broken_pages_are_refused_in_one_sentence(served: Callable[..., str], text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refusal:
        read_traffic(served(lambda _: (200, text.encode())))
    assert len(refusal.value.faults) == 1
    assert len(str(refusal.value)) < 600


def test_hostile_pages_are_harmless(served: Callable[..., str]) -> None:
    page = vllm_page(INPUTS, OUTPUTS).replace("_sum{", '_sum{a="\\u001b[31m",').replace('le="5.0"', 'le="five"')
    page += 'vllm:request_prompt_tokens_bucket{le="1e308"} 1e308\nvllm:request_prompt_tokens_bucket{le="-5"} -3\n'
    read = read_traffic(served(lambda _: (200, page.encode())))
    assert all(1 <= one <= 10_000_000 for one in drawn(read.windows[0], 50).ravel())
    with pytest.raises(ConfigError, match="did not answer with text"):
        read_traffic(served(lambda _: (200, b"\xff\xfe\x00vllm")))
    with pytest.raises(ConfigError, match="status 401"):
        read_traffic(served(lambda _: (401, b"\x1b[31mno")))
    with pytest.raises(ConfigError, match="cannot be reached"):
        read_traffic("http://127.0.0.1:9/metrics")


def test_restarted_server_is_refused(served: Callable[..., str]) -> None:
    pages = iter([vllm_page(INPUTS, OUTPUTS), vllm_page(INPUTS[:10], OUTPUTS[:10])])
    with pytest.raises(ConfigError, match="started anew"):
        read_traffic(served(lambda _: (200, next(pages).encode())), 1.0, clock=VirtualClock())


def test_no_password_in_a_description(served: Callable[..., str]) -> None:
    address = served(lambda _: (200, vllm_page(INPUTS, OUTPUTS).encode())).replace("http://", "http://me:secret@")
    with pytest.raises(ConfigError) as refusal:  # urllib takes no names in addresses
        read_traffic(address)
    assert "secret" not in str(refusal.value)


def test_prometheus_that_is_none(served: Callable[..., str]) -> None:
    for body in (b"<html>", b"{}", b'{"status": "success", "data": {"result": 3}}', b"[" * 5000):
        with pytest.raises(ConfigError, match=r"does not answer as a Prometheus server|refused"):
            read_traffic("prometheus:" + served(lambda _, body=body: (200, body)), 3600.0)
    with pytest.raises(ConfigError, match="has no vllm:request_prompt_tokens_bucket"):
        read_traffic("prometheus:" + served(lambda _: (200, b'{"status": "success", "data": {"result": []}}')), 3600.0)
    with pytest.raises(ConfigError, match="must read prometheus:http"):
        read_traffic("prometheus:localhost:9090")


def pairs_of(traffic: Traffic) -> list[tuple[int, int]]:
    return sorted(pair for window in traffic.windows for pair in window.pairs)


CASES = {
    "azure.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n",
    "burst.csv": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,374,44,418,API\n45,GPT-4,396,109,505,API\n",
    "mooncake.jsonl": '{"timestamp": 0, "input_length": 374, "output_length": 44, "hash_ids": [1]}\n'
    '{"timestamp": 3000, "input_length": 396, "output_length": 109, "hash_ids": [1]}\n',
    "gateway.jsonl": '{"path": "/health"}\n{"start_time": "2026-11-19T15:00:00Z", "response": {"usage": {"prompt_tokens": 374, '
    '"completion_tokens": 44}}}\n{"start_time": "2026-11-19T15:00:03.5Z", "response": {"usage": {"prompt_tokens": 396, '
    '"completion_tokens": 109}}}\n',
    "access.log": '10.0.0.1 - - [19/Nov/2026:15:00:00 +0000] "POST /v1/completions" 200 prompt_tokens=374 completion_tokens=44\n'
    'GET / 200\n10.0.0.1 - - [19/Nov/2026:15:00:03 +0000] "POST /v1/completions" 200 prompt_tokens=396 completion_tokens=109\n',
    "spans.json": json.dumps(
        {
            "resourceSpans": [
                {
                    "scopeSpans": [
                        {
                            "spans": [
                                {
                                    "startTimeUnixNano": str(10**18 + number),
                                    "endTimeUnixNano": str(10**18 + 10**9),
                                    "attributes": [
                                        {"key": "gen_ai.usage.input_tokens", "value": {"intValue": str(prompt)}},
                                        {"key": "gen_ai.usage.output_tokens", "value": {"intValue": answer}},
                                    ],
                                }
                                for number, (prompt, answer) in enumerate([(374, 44), (396, 109)])
                            ]
                            + [{"startTimeUnixNano": "1", "attributes": []}]
                        }
                    ]
                }
            ]
        }
    ),
    "weka.json": json.dumps(
        {
            "id": "s1",
            "block_size": 64,
            "hash_id_scope": "local",
            "requests": [
                {"t": 0.0, "type": "s", "in": 374, "out": 44, "hash_ids": [1, 2], "api_time": 2.0},
                {
                    "t": 3.0,
                    "type": "subagent",
                    "agent_id": "a",
                    "requests": [{"t": 3.0, "type": "n", "in": 396, "out": 109, "hash_ids": [1, 2, 3], "api_time": 1.0}],
                },
            ],
        }
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_files_with_single_requests(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(CASES[name])
    assert pairs_of(read_traffic(str(path))) == [(374, 44), (396, 109)]


def test_blocks_tell_what_was_seen_before(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    rows = [{"timestamp": 100 * row, "input_length": 1024, "output_length": 9, "hash_ids": [0, row + 1]} for row in range(100)]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert read_traffic(str(path)).windows[0].prefix_share == pytest.approx(0.495)


def test_sessions_have_turns_pauses_and_branches(tmp_path: Path) -> None:
    rows = []
    for session in range(60):
        for turn in range(4):
            begin = 1000 * session + 40 * turn
            rows += [
                {"timestamp": begin, "end_time": begin + 10, "session_id": f"s{session}", "input_tokens": 100 + turn, "output_tokens": 5}
            ] * 2
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    window = read_traffic(str(path)).judged[0]
    assert (window.turns, window.think_s, window.branches) == (8, 30, 2)


def test_a_day_becomes_windows_of_which_the_most_different_are_judged_on(tmp_path: Path) -> None:
    random, rows = np.random.default_rng(0), []
    for hour in range(24):
        mean, rate = (3000, 900) if hour == 3 else (400, 2000) if hour == 15 else (800, 300)
        for at_s in sorted(random.uniform(0, 3600, rate)):
            rows.append(f"{1.7e9 + 3600 * hour + at_s:.3f},{int(random.exponential(mean)) + 1},{int(random.exponential(50)) + 1}")
    path = tmp_path / "day.csv"
    path.write_text("timestamp,input_tokens,output_tokens\n" + "\n".join(rows))
    traffic = read_traffic(str(path))
    assert len(traffic.windows) == 24
    assert len(traffic.judged) == 3
    means = [window.mean_input for window in traffic.judged]
    assert max(means) == pytest.approx(3000, rel=0.1)
    assert min(means) == pytest.approx(400, rel=0.1)
    assert len(read_traffic(str(path), windows=1).judged) == 1


def test_description_comes_back_as_it_was_written(tmp_path: Path) -> None:
    page, path = tmp_path / "metrics.txt", tmp_path / "traffic.json"
    page.write_text(vllm_page(INPUTS, OUTPUTS))
    traffic = read_traffic(str(page))
    traffic.write(path)
    assert path.stat().st_size < 4000
    again = described(path)
    assert read_traffic(str(path)) == again == read_traffic(again.to_json())
    assert drawn(again.windows[0]).mean(axis=0) == pytest.approx(drawn(traffic.windows[0]).mean(axis=0), rel=0.001)
    assert "prompts of" in sentence(again.windows[0])
    assert picture(again).startswith("<svg ")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"windows": []}, "windows"),
        ({"windows": [{"name": "a", "requests": 1.0}]}, "has no lengths"),
        ({"windows": [{"name": "a", "requests": 1.0, "pairs": [[0, 5]]}]}, "from 1 to"),
        ({"windows": [{"name": "a", "requests": 1.0, "pairs": [[5, 5]], "held_out": True}]}, "none is left"),
        ({"windows": [{"name": "a", "requests": -1.0, "pairs": [[5, 5]]}]}, "above 0"),
        ({"windows": [{"name": "a", "requests": 1.0, "inputs": {"bins": [[5, 1, 1]]}, "outputs": {"bins": [[1, 2, 1]]}}]}, "rising order"),
        ({"format": "autoscout traffic 9"}, "autoscout traffic 1"),
        ({"contents": "hello"}, "unknown key"),
    ],
)
def test_wrong_descriptions_are_refused(tmp_path: Path, change: dict[str, object], says: str) -> None:
    good = {"format": "autoscout traffic 1", "windows": [{"name": "a", "requests": 1.0, "pairs": [[5, 5]]}]}
    path = tmp_path / "traffic.json"
    path.write_text(json.dumps({**good, **change}))
    with pytest.raises(ConfigError, match=says):
        read_traffic(str(path))


def test_what_is_no_traffic(tmp_path: Path) -> None:
    path = tmp_path / "readme.txt"
    path.write_text("Hello\n")
    with pytest.raises(ConfigError, match="What can be: a description"):
        read_traffic(str(path))
    with pytest.raises(ConfigError, match="is a folder"):
        read_traffic(str(tmp_path))
    with pytest.raises(ConfigError, match="neither a file nor an address"):
        read_traffic("nowhere")
    with pytest.raises(ConfigError, match="a file has its own time"):
        read_traffic(str(path), 60.0)
