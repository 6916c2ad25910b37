"""Twenty documented deployments: golden command lines, files that parse, and flags that the engines themselves accept."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from engine_deployments import DEPLOYMENTS, Documented, command_line, files

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "engines"
ENGINES = ("vllm", "sglang")
VLLM_PYTHON = os.environ.get("AUTOSCOUT_VLLM_PYTHON", str(ROOT / ".venv-vllm" / "bin" / "python"))
PARSE = """
import json, sys
from vllm.utils.argparse_utils import FlexibleArgumentParser
try:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
except ImportError:
    from vllm.entrypoints.openai.cli_args import make_arg_parser
parser = make_arg_parser(FlexibleArgumentParser())
for words in json.load(sys.stdin):
    try:
        parser.parse_args(words)
    except SystemExit:
        print("REFUSED", words)
        continue
    print("accepted")
"""


def lines(engine: str) -> str:
    told = [f"# {this.name}, {this.gpus}\n{shlex.join(command_line(engine, this))}\n" for this in DEPLOYMENTS]
    return "\n".join(told)


@pytest.mark.parametrize("engine", ENGINES)
def test_command_lines_change_only_on_purpose(engine: str) -> None:
    path = GOLDEN / f"{engine}.txt"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(lines(engine))
    assert lines(engine) == path.read_text(), f"If the change is meant, delete {path} and run this test again"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("this", DEPLOYMENTS, ids=lambda this: this.name)
def test_the_hand_over_is_whole(engine: str, this: Documented) -> None:
    made = files(engine, this)
    assert {"run.sh", "config.yaml", "bench_run.sh", "k8s_deploy.yaml", "compose.yaml"} <= made.keys()
    subprocess.run(["sh", "-n"], input=made["run.sh"], text=True, check=True)
    workload, *services = list(yaml.safe_load_all(made["k8s_deploy.yaml"]))
    pod = workload["spec"]["template"]["spec"]["containers"][0]
    gpus = int(this.gpus.split("x")[0])
    nodes = workload["spec"]["replicas"]
    assert pod["resources"]["limits"]["nvidia.com/gpu"] * nodes <= gpus
    assert all(service["kind"] == "Service" for service in services)
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


def test_the_config_file_says_what_the_command_line_says() -> None:
    eight = next(this for this in DEPLOYMENTS if this.name == "llama-8b, eight bits")
    read = yaml.safe_load(files("vllm", eight)["config.yaml"])
    assert read == {"quantization": "fp8", "kv-cache-dtype": "fp8"}
    line = command_line("vllm", eight)
    assert all(f"--{name}" in line and str(value) in line for name, value in read.items())


def test_flags_are_those_of_the_table() -> None:
    """SGLang cannot be imported without CUDA packages; the tables are read from its source, see scripts/knob_tables.py."""
    from autoscout.backends._shared.engine.table import table_for

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
def test_vllm_accepts_every_command_line() -> None:
    if not Path(VLLM_PYTHON).exists():
        pytest.skip("no vLLM: `make test-vllm` installs it, or name its Python in AUTOSCOUT_VLLM_PYTHON")
    given = [command_line("vllm", this)[2:] for this in DEPLOYMENTS]
    words = [[word.replace("{port}", "8000") for word in line] for line in given]
    done = subprocess.run([VLLM_PYTHON, "-c", PARSE], input=json.dumps(words), capture_output=True, text=True, timeout=300)
    assert done.stdout.split("\n")[-len(words) - 1 : -1] == ["accepted"] * len(words), done.stdout[-2000:] + done.stderr[-2000:]
