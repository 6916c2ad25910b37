"""Holds the docs to the code: verbs, flags, plug-ins, public names, quoted messages, examples."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import autoscout
from autoscout.cli.main import whole_program
from autoscout.core import plugins
from autoscout.core.trial import Status
from autoscout.study.campaign import Campaign

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("README.md")])
TEXT = "\n".join(page.read_text() for page in PAGES)
FLAGS = ROOT / "tests" / "golden" / "cli" / "flags.txt"


def flags() -> str:
    """Every verb with its arguments and flags, one verb a line."""

    def walk(command: object, path: str) -> list[str]:
        inner = getattr(command, "commands", None)
        if inner is not None:
            return [line for name in sorted(inner) for line in walk(inner[name], f"{path} {name}".strip())]
        names = sorted(option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts))  # type: ignore[attr-defined]
        return [f"{path}: {' '.join(names)}"]

    return "\n".join(walk(whole_program(), "")) + "\n"


def test_flags_change_only_on_purpose(check_recorded: Callable[[Path, str], None]) -> None:
    check_recorded(FLAGS, flags())


def test_every_public_name_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text()
    assert [name for name in autoscout.__all__ if name != "__version__" and f"### `{name}`" not in page] == []


def test_every_verb_is_documented() -> None:
    verbs = [line.split(":")[0] for line in flags().splitlines()]
    missing = [verb for verb in verbs if not re.search(r"autoscout " + verb.replace(" ", r"[^\n]*"), TEXT)]
    assert not missing


@pytest.mark.parametrize("kind", plugins.kinds())
def test_every_plug_in_is_documented(kind: str) -> None:
    missing = [name for name in plugins.available(kind) if f"`{name}`" not in TEXT]
    assert not missing


def test_every_block_of_a_campaign_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "campaign.md").read_text()
    missing = [name for name, field in Campaign.model_fields.items() if f"`{field.alias or name}`" not in page]
    for block in Campaign.model_fields.values():
        fields = getattr(block.annotation, "model_fields", {})
        missing += [name for name in fields if f"`{name}`" not in page]
    assert not missing


def test_quoted_messages_are_in_the_code() -> None:
    quoted = re.findall(r"^### `([^`]+)`$", (ROOT / "docs" / "troubleshooting.md").read_text(), flags=re.MULTILINE)
    code = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    assert len(quoted) > 8
    assert [message for message in quoted if message not in code] == []


def test_every_status_is_explained() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    assert [status.value for status in Status if status is not Status.OK and f"`{status.value}`" not in page] == []


def test_the_readme_campaign_runs(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    block = next(text for text in re.findall(r"```yaml\n(.*?)```", readme, flags=re.DOTALL) if "system: command" in text)
    (tmp_path / "campaign.yaml").write_text(block.replace('"python -c', f'"{sys.executable} -c'))
    program = [
        sys.executable,
        "-c",
        "from autoscout.cli.main import main; main()",
        "tune",
        "campaign.yaml",
        "--max-trials",
        "3",
        "--rounds",
        "1",
    ]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "autoscout_results").exists()


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_print_what_is_recorded(example: Path, tmp_path: Path, check_recorded: Callable[[Path, str], None]) -> None:
    done = subprocess.run([sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    check_recorded(example.with_suffix(".out"), done.stdout)
