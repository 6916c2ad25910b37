"""For the tests of the `command` backend: a server, its benchmark, and launches as real processes, killed as a group at the limit."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

from autoscout.core.launch import Completed, Launch

SERVER = """
import http.server, os, subprocess, sys, time
mode = sys.argv[2]
if mode == "slow": time.sleep(60)
if mode == "oom": print("torch.OutOfMemoryError: CUDA out of memory", flush=True); sys.exit(1)
if mode == "flag": print("server: error: unrecognized arguments: --x", flush=True); sys.exit(2)
if mode == "crash": raise SystemExit("bad weights")
if mode == "deaf":
    import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
print("pids", os.getpid(), child.pid, flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/die": print("CUDA out of memory", flush=True); os._exit(1)
        self.send_response(200); self.end_headers(); self.wfile.write(b"5")
    def log_message(self, *args): pass
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print("server is up", flush=True)
server.serve_forever()
"""
BENCH = """
import sys, urllib.request
reply = urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/{sys.argv[2]}").read().decode()
print("tps:", int(reply) * int(sys.argv[3]))
"""


def assert_gone(folder: Path) -> None:
    pids = [int(word) for line in (folder / "server.log").read_text().splitlines() if line.startswith("pids") for word in line.split()[1:]]
    for pid in pids:
        stat = Path(f"/proc/{pid}/stat")
        assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX", f"{pid} outlived the trial"


def execute(launch: Launch, folder: Path) -> Completed:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in launch.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    argv = [word.replace("{folder}", str(folder)) for word in launch.argv]
    env = {**os.environ, **{name: text.replace("{folder}", str(folder)) for name, text in launch.env.items()}}
    began_s = time.monotonic()
    timed_out = False
    with (folder / "out").open("wb") as stdout, (folder / "err").open("wb") as stderr:
        process = subprocess.Popen(
            ["/bin/sh", "-c", argv[0]] if launch.shell else argv, cwd=folder, env=env, stdout=stdout, stderr=stderr, start_new_session=True
        )
        try:
            process.wait(launch.limit_s or 60)
        except subprocess.TimeoutExpired:
            timed_out = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return Completed(
        returncode=None if timed_out else process.returncode,
        stdout=(folder / "out").read_text(errors="replace"),
        stderr=(folder / "err").read_text(errors="replace"),
        outputs={name: (folder / name).read_text(errors="replace") for name in launch.outputs if (folder / name).is_file()},
        wall_s=time.monotonic() - began_s,
        timed_out=timed_out,
        folder=str(folder),
    )
