"""The engines' own parsers, in the environment that `scripts/setup-vllm` makes: which command lines they take."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

READERS = {  # `read` takes the words after `vllm`, or after `sglang.launch_server`
    "vllm": """
from vllm.entrypoints.cli.serve import cmd_init
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
commands = parser.add_subparsers(required=True, dest="subparser")
for command in cmd_init():
    command.subparser_init(commands)
def read(words):
    return {name: value for name, value in vars(parser.parse_args(words)).items() if name not in ("config", "dispatch_function")}
""",
    "sglang": """
import msgspec
from sglang.srt.server_args import prepare_server_args
def read(words):
    return msgspec.structs.asdict(prepare_server_args(words))
""",
}
ASK = """
import contextlib, io, json, sys
answers = []
for line in json.load(sys.stdin):
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            read(line)
        answers.append("")
    except (SystemExit, Exception) as error:
        told = said.getvalue().rpartition("error: ")[2] if isinstance(error, SystemExit) else f"{type(error).__name__}: {error}"
        answers.append(" ".join(told.partition("For further information")[0].split()) or repr(error))
print(json.dumps(answers))
"""
LIMIT_S = 3600


def refusals(engine: str, version: str, lines: Sequence[Sequence[str]], environment: Path) -> list[str]:
    """What an engine's parser says to each command line; nothing where it takes it.

    Args:
        engine: Name of the backend.
        version: Whose parser it is.
        lines: The words after those that start the engine; of vLLM with `serve`.
        environment: That of `scripts/setup-vllm`.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) if engine == "vllm" else environment / "sglang"
        if engine == "vllm":
            (wheel,) = (environment / "wheels").glob(f"vllm-{version}-*.whl")
            subprocess.run(["unzip", "-q", str(wheel), "*.py", "*.json", "*/METADATA", "-d", folder], check=True)
            metadata = next(source.glob("*.dist-info")) / "METADATA"  # vLLM takes "cpu" in its version for the kind of build
            metadata.write_text(re.sub(r"(?m)^(Version: \S+)$", r"\1+cpu", metadata.read_text(encoding="utf-8"), count=1), encoding="utf-8")
        env = {**os.environ, "PYTHONPATH": str(source), "HF_HUB_OFFLINE": "1"}
        command = [str(environment / "bin" / "python"), "-c", READERS[engine] + ASK]
        text = json.dumps(list(map(list, lines)))
        done = subprocess.run(command, input=text, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"the parser of {engine} {version} could not be asked: {done.stderr[-2000:]}")
    answers = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(answers, list)
    return answers
