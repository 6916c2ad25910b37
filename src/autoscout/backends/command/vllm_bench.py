"""What vLLM's own sweep adds to the command lines it is given, so that its strings work here unchanged."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

BENCH = ["vllm", "bench", "serve"]
SAVED = "--save-result --result-dir {folder} --result-filename bench.json"
PERCENTILES = "--percentile-metrics ttft,tpot,itl,e2el --metric-percentiles 50,90,95,99"
METRICS = {"*": {"json": "", "file": "bench.json"}}
HEALTH = "http://127.0.0.1:{port}/health"


def completed(workload: Mapping[str, Any]) -> dict[str, Any]:
    """The workload with `vllm bench serve` told to save its result, the metrics read from there, and a port that server and load share.

    Anything that is written down already stays as it is; other benchmarks are left alone.
    """
    serve, bench = workload.get("serve"), workload.get("bench")
    if not isinstance(bench, str) or not isinstance(serve, str) or "metrics" in workload:
        return dict(workload)
    try:
        words, started = shlex.split(bench), shlex.split(serve)
    except ValueError:
        return dict(workload)
    if words[:3] != BENCH or "--save-result" in words:
        return dict(workload)
    more = [SAVED] if "--metric-percentiles" in words or "--percentile-metrics" in words else [SAVED, PERCENTILES]
    found = {**workload, "metrics": METRICS}
    if not any(word.split("=")[0] in ("--port", "--base-url") for word in (*words, *started)):
        more.append("--port {port}")
        host = "" if any(word.split("=")[0] == "--host" for word in started) else " --host 127.0.0.1"  # vLLM listens to the whole world
        found["serve"] = f"{serve.strip()}{host} --port {{port}}"
        found.setdefault("health", HEALTH)
    return {**found, "bench": " ".join([bench.strip(), *more])}


__all__ = ["completed"]
