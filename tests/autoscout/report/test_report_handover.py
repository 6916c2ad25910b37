from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from report_studies import DEFAULT, KNOBS, make_study, make_task, make_trial

from autoscout.analysis.summary import Summary, summarise
from autoscout.common import files as report_files
from autoscout.common.files import write_file, write_folder
from autoscout.core.errors import ConfigError, StoreError
from autoscout.report.handover import hand_over

EXPORT = {"run.sh": "#!/bin/sh\necho running\n", "conf/engine.ini": "x = 1\n"}


def gained() -> Summary:
    return summarise(make_task(), make_study(40), DEFAULT, knobs=KNOBS)


def test_the_best_configuration_is_handed_over(tmp_path: Path) -> None:
    summary = gained()
    best = tmp_path / "results" / "best"
    written = hand_over(best, summary, EXPORT, DEFAULT, knobs=KNOBS, variables={"OMP_NUM_THREADS": "16"})
    assert set(written) == {"run.sh", "conf/engine.ini", "config.yaml", "env", "diff.txt", "gain.json", "README.md"}
    assert all((best / name).is_file() for name in written)
    assert summary.answer is not None
    assert yaml.safe_load((best / "config.yaml").read_text()) == summary.answer.to_json()
    assert subprocess.run([best / "run.sh"], capture_output=True, text=True, check=True).stdout == "running\n"
    assert not (best / "conf/engine.ini").stat().st_mode & stat.S_IXUSR
    facts = json.loads((best / "gain.json").read_text())
    assert facts["handed_over"] == "best"
    assert facts["verdict"] == "gain"
    assert facts["gain"]["low"] < facts["gain"]["ratio"] < facts["gain"]["high"]
    assert facts["gain"]["pairs"] == 5
    assert len(facts["best"]["trials"]) == 5
    diff = (best / "diff.txt").read_text()
    assert "threads" in diff
    assert "4 -> 16" in diff
    assert "# threads that compute" in diff
    readme = (best / "README.md").read_text()
    assert "./run.sh" in readme
    assert "over the default" in readme
    environment = (best / "env").read_text()
    assert "\nOMP_NUM_THREADS=16\n" in environment
    assert "#   xllamacpp: 1.2.3" in environment
    assert [path.name for path in best.parent.iterdir()] == ["best"]


def test_without_a_gain_the_default_is_handed_over_and_it_says_so(tmp_path: Path) -> None:
    trials = [make_trial(0, DEFAULT, 100.0), make_trial(1, DEFAULT.extend(threads=8), 120.0)]
    summary = summarise(make_task(), trials, DEFAULT, knobs=KNOBS)
    best = tmp_path / "best"
    hand_over(best, summary, EXPORT, DEFAULT, knobs=KNOBS)
    assert yaml.safe_load((best / "config.yaml").read_text()) == DEFAULT.to_json()
    assert json.loads((best / "gain.json").read_text())["handed_over"] == "default"
    assert "this is the default" in (best / "diff.txt").read_text()
    assert "holds the default" in (best / "README.md").read_text()


def test_nothing_to_hand_over(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to hand over"):
        hand_over(tmp_path / "best", summarise(make_task(), [make_trial(0, DEFAULT)], DEFAULT), EXPORT, DEFAULT)
    assert list(tmp_path.iterdir()) == []


def test_the_engines_own_files_keep_their_names(tmp_path: Path) -> None:
    own = {**EXPORT, "config.yaml": "engine: yes\n", "env": "A=1\n", "README.md": "own\n"}
    written = hand_over(tmp_path / "best", gained(), own, DEFAULT)
    assert (tmp_path / "best/config.yaml").read_text() == "engine: yes\n"
    assert (tmp_path / "best/env").read_text().startswith("A=1\n\n# Measured with this hardware:\n"), "the machine is told all the same"
    assert (tmp_path / "best/README.md").read_text() == "own\n"
    assert "threads" in (tmp_path / "best/knobs.yaml").read_text()
    assert "knobs.yaml" in written


def test_every_file_says_what_it_is_for(tmp_path: Path) -> None:
    hand_over(tmp_path / "best", gained(), {**EXPORT, "config.yaml": "engine: yes\n", "compose.yaml": "services: {}\n"}, DEFAULT)
    readme = (tmp_path / "best/README.md").read_text()
    assert "`config.yaml`: the engine's own settings" in readme
    assert "`knobs.yaml`: the configuration, knob by knob" in readme
    assert "`compose.yaml`: the same server for Docker Compose" in readme


def test_text_cannot_break_out_of_comments(tmp_path: Path) -> None:
    summary = summarise(make_task(), make_study(40), DEFAULT, study="x\nrm: everything")
    variables = {"GOOD": "1", "BAD\nNAME": "2", "LINES": "a\nEVIL=1", "HOME_OF": "{folder}/cache"}
    hand_over(tmp_path / "best", summary, EXPORT, DEFAULT, variables=variables)
    assert "rm" not in yaml.safe_load((tmp_path / "best/config.yaml").read_text())
    lines = (tmp_path / "best/env").read_text().splitlines()
    assert [line for line in lines if line and not line.startswith("#")] == ["GOOD=1"]


def test_an_earlier_folder_is_replaced_whole(tmp_path: Path) -> None:
    best = tmp_path / "best"
    write_folder(best, {"old.txt": "old", "sub/x.txt": "x"})
    write_folder(best, {"new.txt": "new"})
    assert [path.name for path in best.iterdir()] == ["new.txt"]
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


def test_a_failure_half_way_leaves_the_earlier_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    best = tmp_path / "best"
    write_folder(best, {"run.sh": "old"})
    real = os.write
    written: list[int] = []

    def full_disk(handle: int, data: memoryview) -> int:
        written.append(len(data))
        if len(written) > 1:
            raise OSError(28, "No space left on device")
        return real(handle, data)

    monkeypatch.setattr(report_files.os, "write", full_disk)
    with pytest.raises(StoreError, match="No space left on device") as caught:
        write_folder(best, {"run.sh": "new", "b": "2"})
    monkeypatch.undo()
    assert "autoscout report" in str(caught.value)
    assert (best / "run.sh").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


def test_a_disk_that_takes_no_more_is_one_clear_error(tmp_path: Path) -> None:
    """A real refusal by the kernel, in a process of its own: files may not grow beyond 1000 bytes."""
    program = """
import resource, signal, sys
from pathlib import Path
from autoscout.core.errors import StoreError
from autoscout.common.files import write_file, write_folder
write_folder(Path(sys.argv[1]) / "best", {"run.sh": "old"})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for write, content in ((write_file, "x" * 5000), (write_folder, {"a.txt": "small", "run.sh": "x" * 5000})):
    try:
        write(Path(sys.argv[1]) / "best", content)
    except StoreError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.count("results cannot be written: File too large") == 2
    assert (tmp_path / "best/run.sh").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


def test_a_file_in_the_way_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file, not a folder")
    with pytest.raises(StoreError, match="results cannot be written"):
        hand_over(tmp_path / "results" / "best", gained(), EXPORT, DEFAULT)
    assert (tmp_path / "results").read_text() == "a file, not a folder"


def test_a_failed_swap_brings_the_old_folder_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    best = tmp_path / "best"
    write_folder(best, {"run.sh": "old"})
    real = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if Path(target) == best and not (self / "run.sh").read_text() == "old":
            raise OSError(13, "Permission denied")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(StoreError, match="Permission denied"):
        write_folder(best, {"run.sh": "new"})
    assert (best / "run.sh").read_text() == "old"


@pytest.mark.parametrize("name", ["../escape.sh", "/etc/passwd", "a/../../b", "", "nul\0byte"])
def test_names_stay_inside_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="inside the hand-over folder"):
        write_folder(tmp_path / "best", {name: "x", "fine.txt": "y"})
    assert list(tmp_path.iterdir()) == []


def test_odd_characters_do_not_lose_a_result(tmp_path: Path) -> None:
    write_file(tmp_path / "a.txt", "lone \ud800 surrogate, fine ü")
    assert (tmp_path / "a.txt").read_text() == "lone ? surrogate, fine ü"
    write_file(tmp_path / "a.txt", "second")
    assert (tmp_path / "a.txt").read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
