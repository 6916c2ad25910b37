"""A real llama-server under a traffic that is known: what its metrics tell, and what studies on it and on the usual load are worth."""

from __future__ import annotations

import asyncio
import json
import math
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from autoscout.load.client import Client
from autoscout.load.load import Loader
from autoscout.load.plan import Load
from autoscout.load.workload import RequestSource, gaps
from autoscout.traffic.description import Traffic, TrafficWindow
from autoscout.traffic.read import read_traffic
from autoscout.traffic.typical import distance
from autoscout.traffic.words import quantiles

RATE = 0.7  # requests a second: few enough for the totals of llama.cpp to be told apart
VOCAB = 500  # of the small model
PROMPT, ANSWER = (200.0, 0.7), (12.0, 0.8)  # mean and spread of the logarithm
FLAGS = ("-w", "concurrency=4", "-w", "requests=24", "-w", "repeats=1")


def known(count: int = 400, seed: int = 5) -> Traffic:
    """Long prompts with short answers, as code completion has them."""
    random = np.random.default_rng(seed)
    drawn = [random.lognormal(math.log(mean) - spread**2 / 2, spread, count) for mean, spread in (PROMPT, ANSWER)]
    pairs = tuple(sorted((max(4, int(one)), max(1, int(other))) for one, other in zip(*drawn, strict=True)))
    return Traffic(
        source="the traffic that was sent", windows=(TrafficWindow(name="sent", requests=float(count), seconds=count / RATE, pairs=pairs),)
    )


@contextmanager
def server(program: str, model: Path) -> Iterator[int]:
    """A llama-server with metrics."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        program,
        "--model",
        str(model),
        "--port",
        str(port),
        "--host",
        "127.0.0.1",
        "--metrics",
        "--ctx-size",
        "8192",
        "--parallel",
        "4",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                time.sleep(0.5)
        yield port
    finally:
        process.terminate()
        process.wait(30)


def send(port: int, traffic: Traffic, seconds: float) -> None:
    """Poisson arrivals of the traffic for a while."""
    load = Load(workload="traffic", traffic=traffic.to_json(), arrival="poisson", context=2048)
    source = RequestSource(load, VOCAB, seed=3)
    client = Client(port, "m", fields={"cache_prompt": False}, keep_alive=False)
    times_s = np.cumsum(list(islice(gaps(load, 3, RATE), int(seconds * RATE)))).tolist()
    asyncio.run(Loader(client).arriving(source.sessions("real"), [(time_s,) for time_s in times_s]))


def recovered(program: str, model: Path, seconds: float) -> tuple[Traffic, dict[str, Any]]:
    """What the metrics of a server tell of the traffic, and how far that is from it."""
    traffic = known()
    with server(program, model) as port:
        sender = threading.Thread(target=send, args=(port, traffic, seconds + 10))
        sender.start()
        time.sleep(3)
        found = read_traffic(f"http://127.0.0.1:{port}/metrics", seconds)
        sender.join()
    sent, seen = traffic.windows[0], found.windows[0]
    rows = {
        name: {"sent": list(map(float, one)), "read": list(map(float, other))}
        for name, one, other in zip(("prompt", "answer"), quantiles(sent), quantiles(seen), strict=True)
    }
    about = {
        "seconds": seconds,
        "requests": seen.requests,
        "distance": distance(sent, seen),
        "mean_prompt": {"sent": sent.mean_input, "read": seen.mean_input},
        "mean_answer": {"sent": sent.mean_output, "read": seen.mean_output},
        "rate": {"sent": RATE, "read": seen.rate},
        "quantiles": rows,
    }
    return found, about


def study(here: Path, name: str, budget: str, flags: list[str]) -> dict[str, Any]:
    """`autoscout tune`, and what it hands over."""
    words = [
        "tune",
        "llamacpp",
        "-e",
        name,
        "-o",
        str(here),
        "--model",
        "random-tiny",
        "--budget",
        budget,
        "--no-warm-start",
        "--json",
        *FLAGS,
        *flags,
    ]
    done = subprocess.run([sys.executable, "-m", "autoscout", *words], capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        raise SystemExit(done.stderr[-2000:])
    document = json.loads(done.stdout)
    return {name: document.get(name) for name in ("verdict", "answer", "gain", "changes", "trials")}


def judged(here: Path, traffic: Path, answers: dict[str, dict[str, Any]], rounds: int) -> dict[str, list[float]]:
    """Each configuration under the traffic, in rounds."""
    found: dict[str, list[float]] = {name: [] for name in answers}
    for _ in range(rounds):
        for name, config in answers.items():
            pins = [
                word
                for knob, value in config.items()
                for word in ("--set", f"{knob}={json.dumps(value) if isinstance(value, bool) else value}")
            ]
            words = ["profile", "llamacpp", "--model", "random-tiny", "--traffic", str(traffic), "--json", *FLAGS, *pins]
            done = subprocess.run([sys.executable, "-m", "autoscout", *words], capture_output=True, text=True, check=False, cwd=here)
            try:
                metrics = json.loads(done.stdout)["measurements"][0]["metrics"]
                found[name].append(float(metrics["output_throughput"]))
            except (ValueError, KeyError, IndexError):
                print(f"{name}: {done.stderr[-500:]}", file=sys.stderr)
    return found


def real(here: Path, program: str, model: Path, *, seconds: float, budget: str, rounds: int) -> dict[str, Any]:
    """All of it."""
    here.mkdir(parents=True, exist_ok=True)
    load = os.getloadavg()[0]
    found, about = recovered(program, model, seconds)
    found.write(here / "read.json")
    known().write(here / "sent.json")
    print(json.dumps(about), file=sys.stderr)
    own = study(here, "own", budget, ["--traffic", str(here / "read.json")])
    usual = study(here, "usual", budget, [])
    found_by = {"on its own traffic": own, "on the usual load": usual}  # the context follows from the load that is served
    tuned = {
        name: {knob: value for knob, value in (one["answer"] or {}).items() if knob != "context_size"} for name, one in found_by.items()
    }
    answers = {"default": {}, **tuned}
    return {
        "load_average": [load, os.getloadavg()[0]],
        "recovered": about,
        "own": own,
        "usual": usual,
        "judged": judged(here, here / "sent.json", answers, rounds),
    }
