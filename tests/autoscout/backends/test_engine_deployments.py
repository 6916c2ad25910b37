"""Twenty documented deployments: golden command lines, files that parse, and flags that the engines themselves accept."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from benchmarks._engine_parsers import READERS
from engine_deployments import DEPLOYMENTS, ENGINES, Documented, command_line, files

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "engines"
VLLM_PYTHON = os.environ.get("AUTOSCOUT_VLLM_PYTHON", str(ROOT / ".venv-vllm" / "bin" / "python"))
SGLANG = Path(VLLM_PYTHON).parents[1] / "sglang"  # its wheel, unpacked; vLLM's environment holds what its parser imports
COMPARE = """
import json, sys
for line, short in json.load(sys.stdin):
    try:
        whole, by_file = read(line), read(short)
    except (SystemExit, Exception) as error:
        print("REFUSED", line, repr(error))
        continue
    other = [(name, value, by_file[name]) for name, value in whole.items() if value != by_file[name]]
    print("accepted" if not other else f"the file says something else: {line} {other}")
"""


def lines(engine: str) -> str:
    told = [f"# {this.name}, {this.gpus}\n{shlex.join(command_line(engine, this))}\n" for this in DEPLOYMENTS]
    return "\n".join(told)


@pytest.mark.parametrize("engine", ENGINES)
def test_command_lines_change_only_on_purpose(engine: str, check_recorded: Callable[[Path, str], None]) -> None:
    check_recorded(GOLDEN / f"{engine}.txt", lines(engine))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("this", DEPLOYMENTS, ids=lambda this: this.name)
def test_the_hand_over_is_whole(engine: str, this: Documented) -> None:
    made = files(engine, this)
    assert {"run.sh", "config.yaml", "bench_run.sh", "k8s_deploy.yaml", "compose.yaml"} <= made.keys()
    subprocess.run(["sh", "-n"], input=made["run.sh"], text=True, check=True)
    workload, *others = list(yaml.safe_load_all(made["k8s_deploy.yaml"]))
    pod = workload["spec"]["template"]["spec"]["containers"][0]
    gpus = int(this.gpus.split("x")[0])
    nodes = workload["spec"]["replicas"]
    assert pod["resources"]["limits"]["nvidia.com/gpu"] * nodes <= gpus
    assert {other["kind"] for other in others} <= {"Service", "PersistentVolumeClaim"}
    assert this.model in json.dumps(pod)
    service = yaml.safe_load(made["compose.yaml"])["services"]["llm"]
    assert service["image"] == pod["image"]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_several_machines_start_in_order() -> None:
    two = next(this for this in DEPLOYMENTS if this.name == "llama-405b, two machines")
    made = files("vllm", two)
    assert "--nnodes 2" in shlex.join(command_line("vllm", two))
    assert '--node-rank "$NODE_RANK"' in made["run.sh"]
    assert "--headless" in made["run.sh"]
    assert yaml.safe_load_all(made["k8s_deploy.yaml"]).__next__()["kind"] == "StatefulSet"
    assert "--host 0.0.0.0" in made["k8s_deploy.yaml"]
    assert "--host 127.0.0.1" in made["compose.yaml"], "reachable from this machine only, with the network of the host too"


def test_the_config_file_says_what_the_command_line_says() -> None:
    eight = next(this for this in DEPLOYMENTS if this.name == "llama-8b, eight bits")
    read = yaml.safe_load(files("vllm", eight)["config.yaml"])
    assert read == {"quantization": "fp8", "kv-cache-dtype": "fp8"}
    line = command_line("vllm", eight)
    assert all(f"--{name}" in line and str(value) in line for name, value in read.items())


def test_flags_are_those_of_the_table() -> None:
    """Tables are read from the engines' source, see scripts/knob_tables.py; the engines' own parsers are asked below."""
    from autoscout.engines.table import table_for

    for engine, version in (("vllm", "0.32.0"), ("sglang", "0.5.23")):
        known = {row.flag: row for row in table_for(engine, version).flags.values()}
        for this in DEPLOYMENTS:
            words = command_line(engine, this)
            for place, word in enumerate(words):
                if not word.startswith("--"):
                    continue
                positive = "--" + word.removeprefix("--no-")
                row = known.get(word) or known[positive]
                if row.choices and row.type == "choice":
                    assert words[place + 1] in map(str, row.choices), f"{this.name}: {word} {words[place + 1]}"


@pytest.mark.engines
@pytest.mark.parametrize("engine", ENGINES)
def test_the_engine_accepts_every_command_line_and_reads_the_same_from_the_file(engine: str, tmp_path: Path) -> None:
    needed = {"vllm": Path(VLLM_PYTHON), "sglang": SGLANG}[engine]
    if not needed.exists():
        pytest.skip(f"no {needed}: `make test-vllm` installs it")
    begin = {"vllm": 1, "sglang": 3}[engine]  # `serve` is part of vLLM's parser
    pairs = []
    for number, this in enumerate(DEPLOYMENTS):
        path = tmp_path / f"{number}.yaml"
        path.write_text(files(engine, this)["config.yaml"])
        line = [word.replace("{port}", "8000") for word in command_line(engine, this)[begin:]]
        pairs.append((line, [*line[:2], "--config", str(path), "--host", "127.0.0.1", "--port", "8000"]))
    script = READERS[engine] + COMPARE
    env = {**os.environ, "PYTHONPATH": str(SGLANG) if engine == "sglang" else ""}
    done = subprocess.run([VLLM_PYTHON, "-c", script], input=json.dumps(pairs), env=env, capture_output=True, text=True, timeout=600)
    assert done.stdout.splitlines()[-len(pairs) :] == ["accepted"] * len(pairs), done.stdout[-2000:] + done.stderr[-2000:]
