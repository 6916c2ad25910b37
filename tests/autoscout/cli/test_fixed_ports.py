"""Two studies of one machine whose campaigns fix the same port: they take turns, and each measures its own server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autoscout.core.journal import read_trials
from autoscout.load.server import free_port

pytestmark = pytest.mark.slow

SERVER = """
import http.server, os, socket, sys
named = [word.partition("=")[2] for word in sys.argv if word.startswith("--server-port=")]
port, answer = int(named[0] if named else os.environ["PORT"]), sys.argv[-1]
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(answer.encode())
    def log_message(self, *_): pass
class Server(http.server.HTTPServer):
    def server_bind(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as many real servers do: two of them share a port
        super().server_bind()
server = Server(("127.0.0.1", port), Page); print("ready", flush=True); server.serve_forever()
"""
ASK = """
import sys, time, urllib.request
for _ in range(10):
    print("answer", urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/", timeout=5).read().decode()); time.sleep(0.05)
"""
MEET = """
import os, socket, sys, time
with socket.create_server(("127.0.0.1", int(os.environ["MASTER_PORT"]))):
    time.sleep(0.7)
print("answer", sys.argv[1])
"""


def served(folder: Path, port: int, answer: str, how: str) -> dict[str, Any]:
    (folder / "server.py").write_text(SERVER)
    (folder / "ask.py").write_text(ASK)
    option = f" --server-port={port}" if how == "option" else ""
    workload = {
        "serve": f"exec {sys.executable} {folder}/server.py{option} {answer}",
        "bench": f"{sys.executable} {folder}/ask.py {port} {{x}}",
        "health": {"log": "^ready"},
    }
    return workload if how == "option" else {**workload, "env": {"PORT": str(port)}}


def trained(folder: Path, port: int, answer: str) -> dict[str, Any]:
    (folder / "meet.py").write_text(MEET)
    return {"command": f"MASTER_ADDR=127.0.0.1 MASTER_PORT={port} {sys.executable} {folder}/meet.py {answer} {{x}}"}


@pytest.mark.parametrize("how", ["option", "variable", "meeting"])
def test_two_studies_take_turns_at_a_port_that_both_fix(tmp_path: Path, how: str) -> None:
    port, environment = free_port(), {**os.environ, "AUTOSCOUT_LEASES": str(tmp_path / "leases")}
    processes = []
    for answer in ("11", "22"):
        folder = tmp_path / answer
        folder.mkdir()
        workload = trained(folder, port, answer) if how == "meeting" else served(folder, port, answer, how)
        campaign = {
            "system": "command",
            "name": "study",
            "workload": {**workload, "metrics": {"answer": {"regex": "answer ([0-9]+)", "pick": "max"}}},
            "goal": {"metric": "answer", "direction": "minimize"},
            "space": {"knobs": {"x": {"range": [0, 9], "default": 0}}},
            "budget": {"trials": 4},
            "search": {"searcher": "random"},
            "measure": {"dirty_repeats": 0},
            "finals": {"rounds": 0},
        }
        (folder / "campaign.yaml").write_text(json.dumps(campaign))
        tune = [sys.executable, "-m", "autoscout", "tune", "campaign.yaml"]
        processes.append(subprocess.Popen(tune, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    said = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    for answer in ("11", "22"):
        trials = read_trials(tmp_path / answer / "autoscout_results" / "study")
        assert [trial.measurement.metrics.get("answer") for trial in trials] == [float(answer)] * 4, [t.measurement for t in trials]
        answers = "".join(path.read_text() for path in (tmp_path / answer).rglob("run0.stdout"))
        assert set(answers.split()) == {"answer", answer}, "no answer of the other study's server"
