"""A real Prometheus server, which scrapes a page that vLLM could have written."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from traffic_pages import lengths, vllm_page

from autoscout.core.errors import ConfigError
from autoscout.traffic.read import read_traffic

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not shutil.which("prometheus"), reason="prometheus is not installed")]

INPUTS, OUTPUTS = lengths(4000, 900, 0.8, 1), lengths(4000, 70, 1.0, 2)
RATE = 60.0
LEAST_SCRAPES = 20


class Growing(BaseHTTPRequestHandler):
    """Answers more requests with every second."""

    begun_s = 0.0
    scrapes = 0

    def do_GET(self) -> None:
        Growing.scrapes += 1
        count = min(len(INPUTS), int(RATE * (time.monotonic() - self.begun_s)))
        body = vllm_page(INPUTS[:count], OUTPUTS[:count], hits=0.25).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[str]:
    Growing.begun_s, Growing.scrapes = time.monotonic(), 0
    engine = ThreadingHTTPServer(("127.0.0.1", 0), Growing)
    threading.Thread(target=engine.serve_forever, daemon=True).start()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "p.yml").write_text(
        "global: {scrape_interval: 1s}\nscrape_configs:\n"
        f"- job_name: llm\n  static_configs: [{{targets: ['127.0.0.1:{engine.server_port}']}}]\n"
    )
    command = [
        "prometheus",
        f"--config.file={tmp_path}/p.yml",
        f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path)
    try:
        deadline = time.monotonic() + 120
        while Growing.scrapes < LEAST_SCRAPES:
            assert server.poll() is None, (tmp_path / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, "Prometheus does not scrape"
            time.sleep(0.5)
        urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=30).close()
        yield f"prometheus:http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)
        engine.shutdown()
        engine.server_close()


def test_lengths_and_rate_come_back(prometheus: str) -> None:
    traffic = read_traffic(f'{prometheus}?match=job="llm"', 120.0)
    window = traffic.judged[0]
    assert "vLLM" in traffic.source
    assert window.mean_input == pytest.approx(np.mean(INPUTS), rel=0.25)
    assert window.mean_output == pytest.approx(np.mean(OUTPUTS), rel=0.25)
    assert window.prefix_share == pytest.approx(0.25, abs=0.05)
    with pytest.raises(ConfigError, match='job="other"'):
        read_traffic(f'{prometheus}?match=job="other"', 120.0)
    with pytest.raises(ConfigError, match="status 400"):
        read_traffic(f"{prometheus}?match=job=", 120.0)
