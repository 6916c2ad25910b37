"""slurm.conf: the smallest change of the text, and refusal where a line is not ours to change."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from autosched.live.slurm import LiveSlurm, qos
from autosched.live.slurm.conf import MARK, difference, includes, rendered
from autosched.live.slurm.knobs import KNOBS, PARAMETERS, read_settings
from autosched.live_scheduler import LiveError
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError

TEXT = """# our cluster
ClusterName=lab
PriorityWeightAge = 1000   # as agreed in May
schedulerparameters=defer,bf_interval=30,bf_max_job_test=100
PriorityMaxAge=7-0
NodeName=n[1-4] Gres=gpu:4   # PriorityWeightQOS=3
"""
NOW = read_settings({"PriorityWeightAge": "1000", "SchedulerParameters": "defer,bf_interval=30,bf_max_job_test=100"})


def test_a_file_that_is_gone_is_said_and_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(TEXT)
    live = LiveSlurm({"conf": str(conf)})
    (tmp_path / ".slurm.conf.7.partial").write_text("half")
    live._write(TEXT + "# more\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["slurm.conf"]
    assert conf.read_text().endswith("# more\n")
    conf.unlink()
    with pytest.raises(LiveError, match="cannot be written"):
        live._write(TEXT)
    assert list(tmp_path.iterdir()) == []


def test_accounting_is_asked_from_before_a_clock_that_went_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slurm.conf").write_text(TEXT)
    live = LiveSlurm({"conf": str(tmp_path / "slurm.conf")})
    since: list[float] = []
    monkeypatch.setattr(live._reading, "accounting", lambda _, since_s, *, long: since.append(since_s) or [])
    for at_s in (1e9, 1e9 - 3_600.0, 1e9 - 3_590.0):
        live._accounting((22, 5), at_s)
    assert since[1] < 1e9 - 3_600.0, "a start in the future is refused by sacct, until the clock has caught up"
    assert since[2] < 1e9 - 3_600.0


def test_only_what_changes_is_touched() -> None:
    text = rendered(TEXT, NOW.extend(priority_weight_age=10, bf_max_job_test=500), NOW, "slurm.conf")
    assert text == TEXT.replace("= 1000   #", "= 10   #").replace("bf_max_job_test=100", "bf_max_job_test=500")
    diff = difference(TEXT, text, "slurm.conf").splitlines()
    assert sum(line.startswith("+") for line in diff) == 3


def test_what_was_not_there_goes_to_the_end_once() -> None:
    first = rendered(TEXT, NOW.extend(priority_favor_small=True, bf_window_s=7_200.0), NOW, "slurm.conf")
    assert first.endswith(f"{MARK}\nPriorityFavorSmall=YES\n")
    assert "bf_max_job_test=100,bf_window=120\n" in first
    second = rendered(first, NOW.extend(priority_weight_qos=5), NOW, "slurm.conf")
    assert second.count(MARK) == 1
    assert rendered(TEXT, NOW, NOW, "slurm.conf") == TEXT, "nothing to change"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("PriorityWeightAge=1\nPriorityWeightAge=2\n", "more than once"),
        ("PriorityWeightAge=1 PriorityWeightQOS=2\n", "shares its line"),
        ("PriorityWeightAge=1 \\\nPriorityWeightQOS=2\n", "shares its line"),
    ],
)
def test_lines_that_cannot_be_changed_safely(text: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        rendered(text, NOW.extend(priority_weight_age=3), NOW, "slurm.conf")


def test_lines_of_included_files_are_not_ours(tmp_path: Path) -> None:
    (tmp_path / "more.conf").write_text("PriorityWeightAge=5\n")
    text = "Include more.conf\nInclude absent.conf\n"
    with pytest.raises(ConfigError, match=r"is set in more\.conf"):
        rendered(text, NOW.extend(priority_weight_age=3), NOW, "slurm.conf", includes(text, tmp_path))


@given(some.data())
def test_what_is_written_is_read_back(data: some.DataObject) -> None:
    wanted = {}
    for name, knob in KNOBS.items():
        if knob.kind == "flag":
            wanted[name] = data.draw(some.booleans())
        else:
            step = 60 if knob.kind == "minutes" else knob.step_s
            number = data.draw(some.integers(int(-(-knob.least // step)), int(min(knob.most, 10**6) // step))) * step
            wanted[name] = number if knob.kind == "whole" else float(number)
    config = Config(wanted)
    text = rendered("ClusterName=lab\n", config, Config(), "slurm.conf")
    shown = dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))
    assert read_settings(shown) == config


def test_ranges_and_versions() -> None:
    assert KNOBS["bf_interval_s"].faults(0.0, (22, 5))
    assert not KNOBS["bf_interval_s"].faults(1.0, (22, 5))
    assert "needs Slurm 19.05" in str(KNOBS["preempt_exempt_time_s"].faults(1.0, (18, 8))[0])
    with pytest.raises(ConfigError, match="PriorityWeightAge"):
        read_settings({"PriorityWeightAge": "many"})


def test_limits_of_a_quality_of_service() -> None:
    asked: list[tuple[str, ...]] = []

    def ask(*command: str) -> str:
        asked.append(command)
        return "normal|0||\nhigh|100|4|10\n" if "show" in command else ""

    now = qos.read(ask, ["normal", "high"])
    assert now == {
        "qos normal priority": 0, "qos normal max_jobs_per_user": -1, "qos normal max_submit_per_user": -1,
        "qos high priority": 100, "qos high max_jobs_per_user": 4, "qos high max_submit_per_user": 10,
    }  # fmt: skip
    wanted = qos.changes(now, {**now, "qos high max_jobs_per_user": 8}, ["normal", "high"])
    qos.send(ask, wanted)
    assert asked[-1] == ("sacctmgr", "--immediate", "modify", "qos", "where", "name=high", "set", "MaxJobsPerUser=8")
    assert qos.faults_of(Config({"qos high priority": -5}), ["high"])
    with pytest.raises(LiveError, match="no such quality"):
        qos.read(ask, ["absent"])


class StandIn(LiveSlurm):
    """A slurmctld that reads slurm.conf when it is told to reconfigure."""

    def shown(self) -> dict[str, str]:
        if not hasattr(self, "read"):
            self._reconfigure()
        return self.read

    def _reconfigure(self) -> None:
        lines = [line.split("#")[0].partition("=") for line in self.conf.read_text().splitlines()]
        names = {"schedulerparameters": PARAMETERS}
        self.read = {names.get(key.strip(), key.strip()): value.strip() for key, equals, value in lines if equals}
        self.read |= {"SLURM_VERSION": "22.05.8", "PriorityType": "priority/multifactor"}


CHANGE = {"priority_favor_small": True, "priority_weight_job_size": 7, "priority_weight_age": 3, "bf_window_s": 7_200.0}


@pytest.mark.parametrize("text", [TEXT, TEXT.rstrip("\n"), TEXT + "\n\n", f"{TEXT}{MARK}\nPriorityWeightQOS=2\n", TEXT.lower()])
def test_after_a_rollback_the_file_is_byte_for_byte_as_before(tmp_path: Path, text: str) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(text.replace("priority", "Priority").replace("weightage", "WeightAge"))
    before = conf.read_bytes()
    live = StandIn({"conf": str(conf)})
    start = live.settings()
    plan = live.plan(start.extend(CHANGE))
    live.apply(plan)
    assert conf.read_bytes() != before
    undo = live.undo(plan, start)
    assert undo.diff.count("\n-") >= 3, "and the diff says so"
    live.apply(undo)
    assert conf.read_bytes() == before
    assert live.settings() == start


@pytest.mark.parametrize("how", ["undo", "restore"])
def test_a_rollback_keeps_what_somebody_else_wrote_since_and_leaves_no_line_of_ours(tmp_path: Path, how: str) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(TEXT)
    live = StandIn({"conf": str(conf)})
    start = live.settings()
    plan = live.plan(start.extend(priority_favor_small=True, priority_weight_job_size=7, priority_weight_age=3))
    live.apply(plan)
    conf.write_text(conf.read_text().replace("ClusterName=lab", "ClusterName=lab\nMaxJobCount=5000"))
    live._reconfigure()
    if how == "undo":
        live.apply(live.undo(plan, start))
    else:
        live.restore(plan)
    assert conf.read_text() == TEXT.replace("ClusterName=lab", "ClusterName=lab\nMaxJobCount=5000")
