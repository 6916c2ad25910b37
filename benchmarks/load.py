"""What the built-in client costs: `nice -n 10 python -m benchmarks.load [--repeats 3] [--json] [--write]`.

The client and the fake engine run as two processes on this machine. The client's own cost is its CPU time, which hardly depends on who
else uses the machine; what it adds to a latency is its own number less the engine's, which does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import re
import statistics
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

from autoscout.core.clock import RealClock, cpu_s
from autoscout.load.answers import summary
from autoscout.load.client import Client
from autoscout.load.load import Loader, arrival_times
from autoscout.load.plan import Load
from autoscout.load.server import Server
from autoscout.load.workload import RequestSource, gaps

RESULT = Path("docs/lab/results/load.md")
OUTPUT_TOKENS = 32
CASES: dict[str, dict[str, Any]] = {
    "64 clients": {"clients": 64, "requests": 1000},
    "512 clients": {"clients": 512, "requests": 1500},
    "2000 clients": {"clients": 2000, "requests": 3000},
    "30 requests/s": {"rate": 30.0, "requests": 300},
    "150 requests/s": {"rate": 150.0, "requests": 1500},
}
"""A closed loop of clients, or arrivals at a rate."""
PREFACE = """\
# The built-in client

What the client of [loads](../../guides/load.md) costs, measured against the fake engine `autoscout.testing.openai_server`, which runs
next to it as a second process: prompts of 128 token numbers, streamed answers of {tokens} tokens, a token an event. Median of {repeats}
rounds, least and most in brackets. "Added" is the client's mean less the engine's own: the way through the sockets and event loops of
both processes. The engine is a Python program too, so requests/s are those of the pair, and beyond what it can send the sockets fill;
what the client alone could do is "requests a CPU second".

"""
CLOCK = RealClock()


def engine_sums(page: str) -> dict[str, float]:
    """Seconds and counts of the engine's own histograms."""
    found = re.findall(r"^vllm:(time_to_first_token|e2e_request_latency)_seconds_(sum|count)\{[^}]*\} (\S+)", page, re.MULTILINE)
    return {f"{name}_{what}": float(value) for name, what, value in found}


async def measure(port: int, case: dict[str, Any], seed: int) -> dict[str, float]:
    load = Load(input_tokens=128, output_tokens=OUTPUT_TOKENS, arrival="poisson")
    client = Client(port, "fake")
    loader, sessions = Loader(client), RequestSource(load, 32000, seed).sessions("measure")
    before, spent_s = engine_sums((await client.get("/metrics")).decode()), cpu_s()
    if "clients" in case:
        seen = await loader.closed(islice(sessions, case["requests"]), case["clients"])
    else:
        times_s = arrival_times(gaps(load, seed, case["rate"]), case["requests"], case["requests"] / case["rate"])
        seen = await loader.arriving(sessions, [(time_s,) for time_s in times_s])
    spent_s = cpu_s() - spent_s
    after = engine_sums((await client.get("/metrics")).decode())
    client.close()
    found = summary(seen.answers, seen.duration_s)
    own = {
        name: 1000 * (after[f"{name}_sum"] - before[f"{name}_sum"]) / (after[f"{name}_count"] - before[f"{name}_count"])
        for name in ("time_to_first_token", "e2e_request_latency")
    }
    return {
        "requests_per_s": found["request_throughput"],
        "tokens_per_s": found["output_throughput"],
        "failed": found["failed"],
        "client_cpu_ms": 1000 * spent_s / found["completed"],
        "requests_per_cpu_s": found["completed"] / spent_s,
        "ttft_ms": found["mean_ttft_ms"],
        "added_ttft_ms": found["mean_ttft_ms"] - own["time_to_first_token"],
        "added_e2el_ms": found["mean_e2el_ms"] - own["e2e_request_latency"],
    }


def run(repeats: int) -> dict[str, dict[str, list[float]]]:
    engine = (sys.executable, "-m", "autoscout.testing.openai_server", "--port", "{port}", "--max-num-seqs", "4096", "--step-ms", "10")
    flags = ("--sequence-us", "5", "--prefill-us", "1", "--max-num-batched-tokens", "16384")
    rows: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        server = Server((*engine, *flags), {}, Path(folder))
        try:
            server.wait_until_up("/health", 30.0)
            for seed in range(repeats):
                for name, case in CASES.items():
                    for metric, value in asyncio.run(measure(server.port, case, seed)).items():
                        rows.setdefault(name, {}).setdefault(metric, []).append(value)
        finally:
            server.stop(5.0)
    return rows


def shown(values: list[float]) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.3g} ({low:.3g} - {high:.3g})"


def page(rows: dict[str, dict[str, list[float]]], repeats: int, command: str) -> str:
    columns = {
        "requests/s": "requests_per_s",
        "tokens/s": "tokens_per_s",
        "client CPU, ms a request": "client_cpu_ms",
        "requests a CPU second": "requests_per_cpu_s",
        "added to ttft, ms": "added_ttft_ms",
        "added to e2el, ms": "added_e2el_ms",
    }
    lines = ["| load | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name, row in rows.items():
        lines.append(f"| {name} | " + " | ".join(shown(row[metric]) for metric in columns.values()) + " |")
    load = os.getloadavg()[0]
    tail = f"Machine: {os.cpu_count()} cores, {platform.machine()}, load average {load:.1f} at the end. Command: `{command}`."
    return "\n".join([*PREFACE.format(tokens=OUTPUT_TOKENS, repeats=repeats).splitlines(), *lines, "", tail, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT}")
    given = parser.parse_args()
    rows = run(given.repeats)
    text = page(rows, given.repeats, f"python -m benchmarks.load --repeats {given.repeats} --write")
    if given.write:
        RESULT.write_text(text)
    print(json.dumps(rows, indent=1) if given.json else text)


if __name__ == "__main__":
    main()
