"""The measuring process: starts the server with one configuration, loads it over HTTP, and writes what it saw.

    python -m autoscout.backends.llamacpp.bench bench_input.json

Runs in a folder of its own, once per measurement, and starts the very program that is handed over. Writes `stage.txt` as it goes (so that
a kill can be dated) and `bench.json` at the end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from autoscout.backends.llamacpp.client import ServerProcess
from autoscout.backends.llamacpp.gguf_file import GgufError, GgufFile
from autoscout.backends.llamacpp.load import Refused, WrongAnswer, run_load
from autoscout.backends.llamacpp.model import cache_folder, ensure_model, model_facts
from autoscout.backends.llamacpp.probe import Distribution, divergence, probe
from autoscout.backends.llamacpp.stages import FAILED, INPUT, RESULT, STAGE
from autoscout.common.cache import made_once
from autoscout.common.files import write_whole
from autoscout.core import seeds
from autoscout.core.clock import RealClock, timed
from autoscout.core.to_beat import Over, Race, ToBeat
from autoscout.load.server import ServerEnded

WARM_TOKENS = 8  # enough to touch all weights and buffers
UNSETTLED = 0.15  # spread of the repeats, relative to their median, above which up to as many again are taken
ENOUGH_S = 10.0  # no further repeat or request begins after this long: the configuration, or the machine, is slow beyond interest


class Failed(Exception):  # noqa: N818 - a result
    """The measurement ended early; `kind` is a status in the words of `outcome`."""

    def __init__(self, kind: str, reason: str, returncode: int = 0) -> None:
        super().__init__(reason)
        self.kind = kind
        self.returncode = returncode  # of the server, when it ended by itself


def measure(given: Mapping[str, Any], spent: dict[str, float], to_beat: ToBeat | None = None) -> dict[str, Any]:
    """Everything from the model file to the metrics.

    Args:
        given: What to measure.
        spent: Takes the seconds of each part, also where it fails.
        to_beat: Stop as soon as this is out of reach.

    Raises:
        Failed: some step went wrong in a way that can be told apart.
    """
    clock, workload = RealClock(), given["workload"]
    path = _prepare(given)
    reference = _reference(given)
    _stage("loading")
    with timed(spent, "start_s"):
        server = _start(given, path, Path.cwd())
    race = Race(to_beat)
    try:
        _stage("checking")
        tokens = GgufFile(path).prompt_tokens()
        distance = divergence(reference, probe(server, tokens, workload["context"]))
        if not distance <= workload["max_divergence"]:
            rule = f"answers differ from the default's by {distance:.3g} nats a token, more than {workload['max_divergence']:g}"
            raise Failed("wrong_output", rule)
        _stage("warming")

        def repeat(name: str | int, requests: int, output_tokens: int, over: Over | None = None) -> dict[str, float]:
            random = seeds.stream(given["seed"], "prompts", name)
            prompts = [random.choice(tokens, workload["prompt_tokens"]).tolist() for _ in range(requests)]
            return run_load(server, clock, prompts, output_tokens, workload["concurrency"], ENOUGH_S, over)

        if workload["warmup"]:
            with timed(spent, "warm_up_s"):
                repeat("warmup", workload["warmup"], min(WARM_TOKENS, workload["output_tokens"]))
        _stage("measuring")
        begun_s = clock.span_s()
        samples: list[dict[str, float]] = []
        with timed(spent, "measure_s"):
            while not race.lost(samples, workload["repeats"]) and _wanted(samples, workload["repeats"], clock.span_s() - begun_s):
                over = race.over(samples) if to_beat is not None else None
                samples.append(repeat(len(samples), workload["requests"], workload["output_tokens"], over))
    except Refused as error:
        raise Failed("invalid" if error.code == 400 else "crashed", f"the server refused a request: {error}") from error
    except WrongAnswer as error:
        raise Failed("wrong_output", str(error)) from error
    except ServerEnded as error:
        raise Failed("ended", str(error), error.returncode) from error
    except OSError as error:
        raise Failed("crashed", str(error)) from error
    finally:
        peak_gib = server.stop()
    single = {"start_s": spent["start_s"], "divergence": distance, "peak_mem_gib": peak_gib}
    if not race.why:
        return _result(samples, single, workload)
    answered = [sample for sample in samples if sample["completed"]]  # the last repeat may have been stopped before its first answer
    return {**_result(answered, single, workload), "bounds": race.bounds, "reason": race.why}


def _prepare(given: Mapping[str, Any]) -> Path:
    """The model file, made first if need be."""
    _stage("preparing")
    workload = given["workload"]
    try:
        facts = model_facts(workload["model"])
        if facts.fingerprint != workload["model_fingerprint"]:
            raise Failed("crashed", f"the model file {workload['model']} is not the one the study began with")
        return ensure_model(workload["model"], given["weights"], cache_folder(workload["cache_dir"]))
    except (GgufError, OSError) as error:
        raise Failed("crashed", f"the model could not be prepared: {error}") from error


def _reference(given: Mapping[str, Any]) -> list[Distribution]:
    """The default's answers, from the cache; a process of its own finds them out the first time."""
    workload, own = given["workload"], given["reference"]
    path = cache_folder(workload["cache_dir"]) / f"answers-{own['key']}.json"
    if not path.exists():

        def make(partial: Path) -> None:
            request = {**given, "settings": own["settings"], "weights": own["weights"], "answers": str(partial)}
            command = [sys.executable, "-m", "autoscout.backends.llamacpp.bench", "-"]
            done = subprocess.run(command, input=json.dumps(request), text=True, capture_output=True, check=False)
            if done.returncode != 0:
                sys.stderr.write(done.stderr)
                same = own["settings"] == given["settings"] and own["weights"] == given["weights"]
                raise Failed("start" if same else "crashed", "the default settings gave no answers to compare with")

        try:
            made_once(path, make)
        except OSError as error:
            raise Failed("crashed", f"the cache cannot be written: {error}") from error
    found: list[Distribution] = json.loads(path.read_text())
    return found


def answer(given: Mapping[str, Any]) -> None:
    """Find out what the engine answers with these settings."""
    path = ensure_model(given["workload"]["model"], given["weights"], cache_folder(given["workload"]["cache_dir"]))
    with tempfile.TemporaryDirectory() as folder:
        server = _start(given, path, Path(folder))
        found = probe(server, GgufFile(path).prompt_tokens(), given["workload"]["context"])
        server.stop()
    Path(given["answers"]).write_text(json.dumps(found))


def _start(given: Mapping[str, Any], path: Path, folder: Path) -> ServerProcess:
    try:
        return ServerProcess({"model_path": str(path), **given["settings"]}, folder)
    except ServerEnded as error:
        kind = "start" if error.returncode > 0 else "ended"
        raise Failed(kind, "the server did not start" if kind == "start" else str(error), error.returncode) from error


def _wanted(samples: list[dict[str, float]], repeats: int, spent_s: float) -> bool:
    """Whether another repeat is worth its time."""
    if not samples or spent_s > ENOUGH_S:
        return not samples
    if len(samples) < repeats:
        return True
    values = [sample["output_throughput"] for sample in samples]
    return 1 < len(samples) < 2 * repeats and (max(values) - min(values)) / median(values) > UNSETTLED


def _result(samples: list[dict[str, float]], single: Mapping[str, float], workload: Mapping[str, Any]) -> dict[str, Any]:
    completed = int(sum(sample["completed"] for sample in samples))
    by_metric = {name: [sample[name] for sample in samples] for name in (samples[0] if samples else ())}
    return {
        "metrics": {**{name: median(values) for name, values in by_metric.items()}, **single},
        "samples": by_metric,
        "requests": completed,
        "output_tokens": completed * workload["output_tokens"],
    }


def _stage(name: str) -> None:
    Path(STAGE).write_text(name + "\n")


def _write(result: Mapping[str, Any]) -> None:
    write_whole(Path(RESULT), json.dumps(result, indent=1) + "\n")


def main(argument: str) -> int:
    """Measure, or give answers when the input asks for them."""
    given = json.loads(sys.stdin.read() if argument == "-" else Path(argument).read_text())
    if "answers" in given:
        answer(given)
        return 0
    spent: dict[str, float] = {}
    try:
        result = {**measure(given, spent, ToBeat.here()), "spent": spent}
    except Failed as error:
        _write({"failure": error.kind, "reason": str(error), "returncode": error.returncode, "spent": spent})
        print(f"{error.kind}: {error}", file=sys.stderr)
        return FAILED
    _write(result)
    _stage("done")
    for name, value in result["metrics"].items():
        print(f"{name}: {value:.6g}")
    return 0


if __name__ == "__main__":
    status = 1
    try:
        status = main(sys.argv[1] if len(sys.argv) > 1 else INPUT)
    except BaseException:  # nobody above us would hear of it
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # clients that still wait for an answer need not be waited for
