"""Every block of code on every page is run or read, or says why not; `_blocks.py` has the rule for authors."""

from __future__ import annotations

import doctest
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import types
from pathlib import Path
from typing import Any

import pytest
import yaml

from _blocks import DATA, LANGUAGES, ROOT, SHELL, Block, Step, blocks, pages
from autosched.control.settings import build_settings
from autoscout.core.errors import PluginError
from autoscout.space import read_space
from autoscout.study.campaign import Campaign, build_campaign
from test_docs import flags

sys.path.insert(0, str(Path(__file__).parent / "cli"))

from _cli_program import run

PAGES = {str(page.relative_to(ROOT)): page for page in pages()}
RUN = {name: page for name, page in PAGES.items() if any(not block.left_out and block.language != "text" for block in blocks(page))}
DRY_RUN = "--dry-run"
END = "-- end of a command --"
FLAGS = {line.split(":")[0]: set(line.split(":")[1].split()) for line in flags().splitlines()}


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_every_block_says_what_it_is(page: Path) -> None:
    wrong = [block.where for block in blocks(page) if block.language not in LANGUAGES]
    assert not wrong, f"give these blocks one of the languages {', '.join(LANGUAGES)}"
    for block in blocks(page):
        if block.runner:
            text = (ROOT / block.runner).read_text(encoding="utf-8")
            named = (f"{page.stem}.md", f'page("{page.stem}")', f'"{page.stem}"')
            assert any(name in text for name in named), f"{block.where}: {block.runner} does not read this page"
    outside = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    indented = re.findall(r"\n\n    (?![-*|\d ]).*(?:\n    .*)*", outside)
    assert not [text for text in indented if re.search(r"^\s*(autoscout|pip|python3?|curl|\$) ", text, re.MULTILINE)], "fence commands"


def test_only_commands_that_are_run_show_output() -> None:
    consoles = [block for page in PAGES.values() for block in blocks(page) if block.language == "console"]
    steps = [(block, step) for block in consoles for step in block.steps if step.output]
    assert steps
    assert not [block.where for block, step in steps if block.reason or (not block.runner and with_dry_run(step.command) != step.command)]


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_every_command_names_flags_that_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    shown = [block.commands.replace("\\\n", " ") for block in blocks(page) if block.language in SHELL]
    spoken = re.findall(r"`(autoscout [^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    unknown = []
    for command in re.findall(r"(?:^|[\s;&|])autoscout ([^\n#|;&>]+)", "\n".join([*shown, *spoken])):
        words = words_of(command)
        verb = next((verb for verb in sorted(FLAGS, key=len, reverse=True) if words[: len(verb.split())] == verb.split()), None)
        if verb is not None:
            used = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
            unknown += [f"autoscout {verb} {flag}" for flag in used - FLAGS[verb] - {"--help"}]
    assert not unknown


def test_output_on_a_page_is_compared_but_for_numbers_and_space() -> None:
    step = Step("autoscout report demo", ("gain 1.20x  [1.1, 1.3]", "...", "took 3:05 min"))
    assert step.differs("gain 1.31x [1.2, 1.4]\ntook 12:40 min\n") == ""
    assert step.differs("gain 1.31x [1.2, 1.4]\nmore\nand more\ntook 1:00 min\n") == ""
    assert "gain none" in step.differs("gain none\ntook 1:00 min\n")
    assert step.differs("gain 1.31x [1.2, 1.4]\ntook 1:00 min\nand a line more\n")
    assert Step("autoscout report demo").differs("anything\n") == "", "a page need not show what a command prints"


def words_of(command: str) -> list[str]:
    """The words of a command as a shell sees them; as they stand where prose has cut it short."""
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


@pytest.mark.parametrize("page", RUN.values(), ids=RUN)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{programs(tmp_path)}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("COLUMNS", "200")
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)  # dataclasses look their module up
    for block in blocks(page):
        if block.left_out or block.language == "text":
            continue
        if block.file:
            (tmp_path / block.file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        if block.language in SHELL:
            run_shell(block, tmp_path)
        elif block.language in DATA:
            read_data(block)
        elif ">>>" in block.text:
            run_doctest(block, module.__dict__)
        else:
            run_python(block, module.__dict__)


def programs(folder: Path) -> Path:
    """A folder with `autoscout` and `python` as they are in the environment of the tests."""
    made = folder / ".programs"
    made.mkdir()
    for name, words in (("autoscout", "-m autoscout"), ("python", ""), ("python3", "")):
        (made / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (made / name).chmod(0o755)
    return made


def run_shell(block: Block, folder: Path) -> None:
    if block.plain:
        for step in block.steps or [Step(line) for line in block.commands.replace("\\\n", " ").splitlines()]:
            run_here(block, folder, step)
        return
    steps = block.steps or [Step(block.commands)]
    text = "\n".join(f"{with_dry_run(step.command)}\necho '{END}'; echo '{END}' >&2" for step in steps)
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{block.where}\n{text}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    for step, errors, out in zip(steps, done.stderr.split(f"{END}\n"), done.stdout.split(f"{END}\n"), strict=False):
        assert not (difference := step.differs(errors + out)), f"{block.where}: {difference}"


def run_here(block: Block, folder: Path, step: Step) -> None:
    """A command of ours in this process: a new one for each would take most of the time."""
    words = shlex.split(with_dry_run(step.command).replace("\\\n", " "), comments=True)[1:]
    done = run(folder, *words)
    assert done.returncode == 0, f"{block.where}: {' '.join(words)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    assert not (difference := step.differs(done.stderr + done.stdout)), f"{block.where}: {difference}"


def with_dry_run(text: str) -> str:
    """Commands with `--dry-run` added to each `autoscout tune` that lacks it: nothing is measured."""
    return re.sub(
        r"^autoscout tune (?:\\\n|[^#\n])*",
        lambda tune: tune[0] if DRY_RUN in tune[0] else f"{tune[0]} {DRY_RUN} ",
        text,
        flags=re.MULTILINE,
    )


def run_python(block: Block, names: dict[str, Any]) -> None:
    try:
        exec(compile(block.text, block.where, "exec"), names)
    except PluginError as missing:
        pytest.skip(f"{block.where} {missing}")


def read_data(block: Block) -> None:
    if block.language == "toml":
        tomllib.loads(block.text)
    elif block.language == "json":
        json.loads(block.text)
    else:
        for document in yaml.safe_load_all(block.text):
            check_yaml(block, document)


def check_yaml(block: Block, data: Any) -> None:
    """A campaign, a part of one, a space, or the file of a controller; anything else only has to be YAML."""
    names = set(data) if isinstance(data, dict) else set()
    if names and names <= set(Campaign.model_fields):
        build_campaign({"system": "command", **data}, where=block.where)
    elif "knobs" in names:
        read_space(block.text)
    elif "live" in names and "cluster" in names:
        build_settings(data, block.where)


def run_doctest(block: Block, names: dict[str, Any]) -> None:
    test = doctest.DocTestParser().get_doctest(block.text, names, block.where, str(block.page), block.line)
    said: list[str] = []
    failed = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=said.append, clear_globs=False).failed
    names.update(test.globs)
    assert failed == 0, "".join(said)
