"""Trackers next to a study: they see everything but secrets, and whatever they do costs the study nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autoscout.core.journal import read_trials

TRACKER = '''
"""A tracker that misbehaves as a file says, and keeps a line of JSON for each call."""

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from autoscout.core.tracker import Tracker


@dataclass(frozen=True, kw_only=True)
class MoodyOptions:
    folder: str = "."
    mood: str = "mood"
    token: str = ""


class MoodyTracker(Tracker):
    """Depends on its mood."""

    def __init__(self, options: MoodyOptions | None = None):
        self.options = options or MoodyOptions()
        self.file = Path("calls.jsonl")

    def note(self, call, data=None):
        mood = Path(self.options.mood).read_text() if Path(self.options.mood).exists() else ""
        print("a package that prints", "x" * 100)
        if mood == f"hang in {call}":
            time.sleep(1000)
        if mood == f"fail in {call}":
            raise OSError("connection refused, password=hunter2horse")
        if mood == f"die in {call}":
            sys.stdout.flush()
            import os
            os._exit(9)
        with self.file.open("a") as file:
            file.write(json.dumps([call, data], default=str) + "\\n")

    def begin(self, study):
        self.note("begin", asdict(study))
        return "there"

    def sent(self):
        lines = [json.loads(line) for line in self.file.read_text().splitlines()]
        return {data["number"] for call, data in lines if call == "add"}

    def add(self, trial):
        self.note("add", asdict(trial))

    def end(self, result):
        self.note("end", asdict(result))
'''
CAMPAIGN = {
    "system": "command",
    "name": "moods",
    "workload": {
        "command": "sleep {pause}; echo size {size}",
        "metrics": {"size": {"regex": "size ([0-9]+)"}},
        "env": {"PLAIN_SETTING": "turbo-nine-nine", "HF_TOKEN": "hf_0123456789abcdefghij"},
    },
    "goal": {"metric": "size", "direction": "maximize", "slo": ["size<=70"]},
    "space": {"knobs": {"size": [10, 50, 90], "pause": {"values": [0.01]}}},
    "budget": {"trials": 3},
    "finals": {"rounds": 1},
    "search": {"searcher": "random"},
    "track": "moody",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a campaign, where the tracker is installed."""
    (tmp_path / "moody.py").write_text(TRACKER)
    info = tmp_path / "moody-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: moody\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[autoscout.trackers]\nmoody = moody:MoodyTracker\n")
    (tmp_path / "campaign.json").write_text(json.dumps(CAMPAIGN))
    (tmp_path / "campaign.yaml").write_text(json.dumps(CAMPAIGN))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    return tmp_path


def autoscout(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "autoscout", *words], capture_output=True, text=True, timeout=300)


def calls(home: Path) -> list[tuple[str, dict]]:
    file = home / "calls.jsonl"
    return [tuple(json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []


def added(home: Path) -> list[int]:
    return [data["number"] for call, data in calls(home) if call == "add"]


def test_a_study_is_shown_while_it_runs_without_secrets_and_values_of_variables(home: Path) -> None:
    done = autoscout("tune", "campaign.yaml")
    assert done.returncode == 0, done.stderr
    trials = read_trials(home / "autoscout_results/moods")
    names = [call for call, _ in calls(home)]
    assert names == ["begin", *["add"] * len(trials), "end"]
    assert added(home) == [trial.number for trial in trials]
    study, result = calls(home)[0][1], calls(home)[-1][1]
    assert study["settings"]["budget.trials"] == 3
    assert study["settings"]["workload.env.PLAIN_SETTING"] == "***"
    assert study["knobs"]["size"]["values"] == [10, 50, 90]
    assert result["state"] == "finished"
    assert {"report.html", "report.json", "summary.csv", "best/run.sh"} <= set(result["files"])
    shown = (home / "calls.jsonl").read_text()
    assert "PLAIN_SETTING" in shown
    assert "turbo-nine-nine" in (home / "autoscout_results/moods/best/run.sh").read_text(), "it runs as it was measured"
    for hidden in ("turbo-nine-nine", "hf_0123456789"):
        assert hidden not in shown
    by_number = {data["number"]: data for call, data in calls(home) if call == "add"}
    broken = [data for data in by_number.values() if data["config"]["size"] == 90]
    assert all(data["violations"] == {"size<=70": 20.0} for data in broken)
    best = [data["best"].get("size") for data in by_number.values()]
    assert best == sorted(best)
    assert best[-1] == 50, "of those that keep the limit"
    assert not list((home / "autoscout_results/moods").glob("track-*.log")), "nothing went wrong, so there is nothing to read"


def test_a_resumed_study_and_the_verb_send_only_what_is_new(home: Path) -> None:
    assert autoscout("tune", "campaign.yaml", "--max-trials", "2", "--rounds", "0").returncode == 0
    first = added(home)
    assert autoscout("resume", "autoscout_results/moods", "--max-trials", "3").returncode == 0
    assert added(home)[: len(first)] == first
    assert len(set(added(home))) == len(added(home)) > len(first)
    again = autoscout("track", "--to", "moody", "--json")
    assert again.returncode == 0, again.stderr
    (answer,) = json.loads(again.stdout)["tracked"]
    assert answer == {"tracker": "moody", "place": "there", "sent": len(added(home)), "trials": len(added(home)), "is_whole": True}


@pytest.mark.parametrize(("mood", "call"), [("fail", "begin"), ("fail", "add"), ("fail", "end"), ("die", "add")])
def test_a_tracker_that_is_down_costs_a_line_and_nothing_else(home: Path, mood: str, call: str) -> None:
    (home / "mood").write_text(f"{mood} in {call}")
    done = autoscout("tune", "campaign.yaml", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["answer"]
    said = [line for line in done.stderr.splitlines() if line.startswith("moody: ")]
    assert len(said) == 1, done.stderr
    assert "autoscout track autoscout_results/moods --to moody" in said[0]
    assert "hunter2horse" not in done.stderr
    refused = autoscout("track", "autoscout_results/moods", "--to", "moody", "--json")
    assert refused.returncode == 2
    assert json.loads(refused.stdout)["tracked"][0]["is_whole"] is False
    (home / "mood").write_text("")
    later = autoscout("track", "autoscout_results/moods", "--to", "moody")
    assert later.returncode == 0, later.stderr
    assert sorted(set(added(home))) == [trial.number for trial in read_trials(home / "autoscout_results/moods")]
    assert len(set(added(home))) == len(added(home))


@pytest.mark.slow
def test_a_tracker_that_hangs_is_waited_for_no_longer_than_is_allowed(home: Path) -> None:
    (home / "mood").write_text("hang in add")
    hasty = "from autoscout.report.tracking import Tracking as T; T.__init__.__kwdefaults__['wait_s'] = 2.0"
    words = [sys.executable, "-c", f"{hasty}; from autoscout.cli import program; program()", "tune", "campaign.yaml"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "moody: did not answer in time" in done.stderr
    assert len(read_trials(home / "autoscout_results/moods")) >= 3
    assert not alive(home), "nothing is left behind"


def test_the_process_of_a_tracker_ends_with_whoever_runs_the_study(home: Path) -> None:
    slow = {**CAMPAIGN, "space": {"knobs": {"size": [10, 50, 90], "pause": {"values": [0.2, 60]}}}, "budget": {"trials": 6}}
    (home / "campaign.yaml").write_text(json.dumps(slow))
    study = subprocess.Popen(
        [sys.executable, "-m", "autoscout", "tune", "campaign.yaml"], stderr=subprocess.DEVNULL, start_new_session=True
    )
    wait_until(lambda: added(home))
    os.killpg(study.pid, signal.SIGKILL)
    study.wait()
    wait_until(lambda: not alive(home))
    assert calls(home)[-1][0] == "end"
    assert calls(home)[-1][1]["state"] != "finished"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--track", "nowhere"], ["unknown tracker", "'nowhere'"]),
        (["--track", "moody:colour=red"], ["colour", "unknown option"]),
        (["--track", "nowhere", "--track", "moody:colour=red"], ["'nowhere'", "colour"]),
    ],
)
def test_what_cannot_be_a_tracker_is_said_before_anything_runs(home: Path, words: list[str], said: list[str]) -> None:
    done = autoscout("tune", "campaign.yaml", *words)
    assert done.returncode == 2
    assert all(word in done.stderr for word in said), done.stderr
    assert not (home / "autoscout_results").exists()
    assert autoscout("tune", "campaign.yaml", "--dry-run", *words).returncode == 2


def test_a_campaign_that_runs_from_python_is_shown_too(home: Path) -> None:
    code = "import autoscout, json; print(autoscout.tune(json.load(open('campaign.json'))).folder.path)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [call for call, _ in calls(home)][-1] == "end"


def alive(home: Path) -> list[int]:
    """Processes of trackers that work in this folder."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words, place = (folder / "cmdline").read_text(), (folder / "cwd").readlink()
        except OSError:
            continue
        if "tracker_process" in words and place == home:
            found.append(int(folder.name))
    return found


def wait_until(is_so, limit_s: float = 120.0) -> None:
    until = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.1)
