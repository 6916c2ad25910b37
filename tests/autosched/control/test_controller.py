"""The controller on a replayed trace and on a scheduler of a few lines: modes, bounds, approval, judgement, restarts."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from _file_scheduler import START, FileScheduler

from autosched.cli import control as cli
from autosched.control import actions
from autosched.control import report as report_module
from autosched.control.controller import Controller
from autosched.control.explain import explanation, one_line
from autosched.control.ledger import Entry, Ledger
from autosched.control.report import MONDAY_S, WEEK_S, write_report
from autosched.control.settings import build_settings, read_settings
from autosched.events import JobEvent
from autosched.live.replay import Replay
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault

BEGIN_S = 1_577_664_406 + 2 * 86_400
HOUR_S = 3_600.0


def replay(folder: Path, mode: str = "apply", trace: str = "synthetic:philly:900:4:1", start_s: float = BEGIN_S, **more: Any) -> Controller:
    live = {"kind": "replay", "trace": trace, "cluster": "3x8", "scheduler": "tiresias", "start": str(start_s)}
    tuning = {"draws": 3, "trials": 8, "searcher": "random", "least_gain": 1.02, **more.pop("tuning", {})}
    given = {"cluster": "toy", "live": live, "folder": str(folder), "mode": mode, "look": "20m", "watch": 0, "tuning": tuning, **more}
    settings = build_settings(given, "test")
    return Controller(settings, Replay({key: value for key, value in live.items() if key != "kind"}))


def small(folder: Path, mode: str = "apply", **more: Any) -> Controller:
    given = {"cluster": "lab", "live": {"kind": "file"}, "folder": str(folder), "mode": mode, "watch": 0, "verify": 1, **more}
    return Controller(build_settings(given, "test"), FileScheduler(folder / "settings.json"))


def test_observe_changes_nothing_and_says_what_it_would_have_gained(tmp_path: Path) -> None:
    controller = replay(tmp_path, "observe")
    before = controller.live.settings()
    controller.run(until_s=BEGIN_S + 6 * HOUR_S)
    assert controller.live.settings() == before
    entries = controller.ledger.history()
    assert {entry.state for entry in entries} <= {"same", "observed"}
    would = [entry for entry in entries if entry.state == "observed"]
    assert would, "on a busy cluster something is found"
    judged = [entry for entry in would if math.isfinite(entry.measured)]
    assert judged, "and looked back at after a period"
    assert all(entry.low <= entry.predicted <= entry.high for entry in would)
    assert len(controller.ledger.samples()) > 12


def test_apply_changes_judges_and_reports(tmp_path: Path) -> None:
    begin_s = BEGIN_S + 5 * 86_400  # a gain that rests on two days of past cannot be shown
    controller = replay(tmp_path, "apply", "synthetic:philly:2600:9:1", begin_s)
    start = controller.live.settings()
    controller.run(until_s=begin_s + 6 * HOUR_S)
    made = [entry for entry in controller.ledger.history() if math.isfinite(entry.applied_s)]
    assert made
    assert made[0].before == start
    assert controller.live.settings() != start or any(entry.state == "undone" for entry in made)
    assert [entry.id for entry in made] == sorted({entry.id for entry in made})
    folder = write_report(controller.ledger, tmp_path / "report", begin_s, begin_s + 6 * HOUR_S, simulated=True)
    report = (folder / "report.md").read_text()
    assert "The cluster is simulated." in report
    assert f"{len(made)} changes" in report
    assert (folder / "over_time.svg").read_text().count("<polyline") >= 3


def test_the_report_of_a_week_is_written_once_it_is_over(tmp_path: Path) -> None:
    controller = small(tmp_path, every="1d")
    clock = controller.live.clock
    clock.sleep(MONDAY_S + WEEK_S - clock.now_s() % WEEK_S)
    controller.tick()
    assert not (tmp_path / "reports").exists()
    clock.sleep(WEEK_S)
    controller.tick()
    folders = list((tmp_path / "reports").iterdir())
    assert len(folders) == 1
    report = folders[0] / "report.md"
    assert "# lab, " in report.read_text()
    report.write_text("read")
    clock.sleep(3_600.0)
    controller.tick()
    assert report.read_text() == "read", "not written again"


def test_the_report_of_a_week_is_there_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    controller = small(tmp_path, every="1d")
    clock = controller.live.clock
    clock.sleep(MONDAY_S + WEEK_S - clock.now_s() % WEEK_S)
    controller.tick()
    clock.sleep(WEEK_S)

    def cut_off(*given: Any, **more: Any) -> str:
        raise SystemExit("kill -9 between the plots and the words")

    with monkeypatch.context() as patched:
        patched.setattr(report_module, "told", cut_off)
        with pytest.raises(SystemExit):
            controller.tick()
    assert not list(tmp_path.glob("reports/[0-9]*")), "half a report would never be completed"
    clock.sleep(3_600.0)
    controller.tick()
    (folder,) = tmp_path.glob("reports/[0-9]*")
    assert sorted(path.name for path in folder.iterdir()) == ["over_time.svg", "report.md"]


def test_a_picture_of_many_looks_is_thinned(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "control.db", "lab")
    for number in range(3_000):
        ledger.sample(10.0 * number, {"load": 1.0, "waiting": 0, "running": 0, "settings": {}})
    folder = write_report(ledger, tmp_path / "report", 0.0, 30_000.0)
    ledger.close()
    assert (folder / "over_time.svg").stat().st_size < 60_000


def test_settings_that_are_worse_are_rolled_back_after_one_period(tmp_path: Path) -> None:
    controller = replay(tmp_path, "apply", every="30d", period="2h")
    controller.run(until_s=BEGIN_S + 2 * HOUR_S)
    start = controller.live.settings()
    worse = {"queues": 1, "round_s": 600.0} if "queues" in start else {}
    actions.propose(
        controller.ledger, {name: value for name, value in worse.items() if name in start}, "test", BEGIN_S + 2 * HOUR_S, approved=True
    )
    controller.run(until_s=BEGIN_S + 8 * HOUR_S)
    forced, *rest = [entry for entry in controller.ledger.history() if entry.kind in ("operator", "rollback")]
    assert forced.state == "undone", forced.why
    assert forced.measured < 1
    assert [entry.kind for entry in rest] == ["rollback"]
    assert rest[0].applied_s - forced.applied_s < 2 * HOUR_S + 2 * 20 * 60
    assert controller.live.settings() == start


def worse_change(controller: Controller) -> int:
    """A change in force that was judged to be worse."""
    controller.tick()
    now_s = controller.live.clock.now_s
    number = actions.propose(controller.ledger, {"priority_weight_job_size": 100}, "ann", now_s(), approved=True).id
    controller.tick()
    entry = controller.ledger.entry(number)
    assert entry.state == "applied"
    controller.ledger.move(entry, "applied", now_s(), "worse", "measured 0.5 times as good", measured=0.5, why="measured 0.5 times as good")
    controller.live.clock.sleep(controller.settings.period_s)
    return number


def test_an_automatic_rollback_that_failed_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    controller = small(tmp_path, "apply", period="1h", look=10)
    number = worse_change(controller)

    def refuse(*_: object) -> Any:
        raise ConfigError(Fault(where="slurm.conf", rule="was edited since slurmctld last read it"))

    with monkeypatch.context() as patched:
        patched.setattr(controller.live, "plan", refuse)
        for _ in range(60):
            controller.tick()
            controller.live.clock.sleep(10.0)
    undo = controller.ledger.rollbacks(controller.ledger.entry(number))
    assert {each.state for each in undo} == {"failed"}
    assert 2 <= len(undo) <= 7, "longer and longer apart"
    assert controller.ledger.entry(number).state == "applied"
    for _ in range(60):
        controller.tick()
        controller.live.clock.sleep(10.0)
    assert controller.live.settings() == START
    assert controller.ledger.entry(number).state == "undone"


def test_a_rollback_over_settings_of_somebody_else_is_not_tried_again(tmp_path: Path) -> None:
    controller = small(tmp_path, "apply", period="1h", look=10)
    live, number = controller.live, worse_change(controller)
    assert isinstance(live, FileScheduler)
    live.running = START.extend(priority_weight_job_size=7)
    for _ in range(3):
        controller.tick()
        live.clock.sleep(600.0)
    assert [each.state for each in controller.ledger.rollbacks(controller.ledger.entry(number))] == ["refused"]
    assert "not rolled back: the settings have changed" in controller.ledger.entry(number).why


def test_a_proposal_waits_for_approval(tmp_path: Path) -> None:
    controller = small(tmp_path, "propose")
    controller.tick()
    now_s = controller.live.clock.now_s()
    first = actions.propose(controller.ledger, {"priority_weight_job_size": 100}, "ann", now_s)
    controller.tick()
    assert controller.live.settings() == START, "nobody approved it"
    actions.approve(controller.ledger, first.id, "bob", now_s)
    controller.tick()
    assert controller.live.settings()["priority_weight_job_size"] == 100
    with pytest.raises(ConfigError, match="not proposed"):
        actions.approve(controller.ledger, first.id, "bob", now_s)
    undo = actions.roll_back(controller.ledger, first.id, "ann", "asked for", now_s)
    with pytest.raises(ConfigError, match="already"):
        actions.roll_back(controller.ledger, first.id, "ann", "asked for", now_s)
    controller.tick()
    assert controller.live.settings() == START
    assert controller.ledger.entry(first.id).state == "undone"
    assert controller.ledger.entry(undo.id).state == "kept"


def test_bounds_hold_for_what_people_ask_for(tmp_path: Path) -> None:
    bounds = {"ranges": {"priority_weight_job_size": [0, 100]}, "changes_per_day": 1}
    controller = small(tmp_path, "apply", bounds=bounds, period=1)
    controller.tick()
    now_s = controller.live.clock.now_s
    for wrong in ({"priority_weight_job_size": 100_000}, {"priority_weight_job_size": 101, "priority_weight_age": 5}):
        with pytest.raises(ConfigError, match="outside of the operator's bounds: 0 to 100 now"):
            actions.propose(controller.ledger, wrong, "ann", now_s())
    assert [entry.kind for entry in controller.ledger.history()] == ["hourly"], "nothing that could be approved"
    fine = actions.propose(controller.ledger, {"priority_weight_job_size": 100}, "ann", now_s(), approved=True)
    controller.tick()
    assert controller.ledger.entry(fine.id).state == "applied"
    controller.live.clock.sleep(2.0)
    controller.tick()
    assert controller.ledger.entry(fine.id).state == "kept"
    second = actions.propose(controller.ledger, {"priority_weight_job_size": 10}, "ann", now_s(), approved=True)
    controller.tick()
    assert "changes have been made or tried" in controller.ledger.entry(second.id).why


def test_a_range_holds_between_the_listed_values_too(tmp_path: Path) -> None:
    controller = small(tmp_path, "propose", bounds={"ranges": {"priority_weight_age": [0, 5000]}})
    controller.tick()
    now_s = controller.live.clock.now_s
    between = actions.propose(controller.ledger, {"priority_weight_age": 4000}, "ann", now_s())
    actions.approve(controller.ledger, between.id, "bob", now_s())
    controller.tick()
    assert controller.ledger.entry(between.id).state == "applied"
    with pytest.raises(ConfigError, match="0 to 5000 now"):
        actions.propose(controller.ledger, {"priority_weight_age": 5001}, "ann", now_s())


def test_bounds_that_came_later_hold_for_what_waits(tmp_path: Path) -> None:
    first = small(tmp_path, "apply")
    first.tick()
    asked = actions.propose(first.ledger, {"priority_weight_age": 4000}, "ann", first.live.clock.now_s(), approved=True)
    first.close()
    second = small(tmp_path, "apply", bounds={"frozen": ["priority_weight_age"]})
    second.tick()
    assert "bounds: 1000 now" in second.ledger.entry(asked.id).why


def test_history_and_explain_word_values_the_same() -> None:
    before = Config(flag=False, age_s=1_209_600.0, weight=5)
    entry = Entry(
        at_s=0.0, state="kept", kind="operator", before=before, after=before.extend(flag=True, age_s=60.0), contributions={"flag": 1.2}
    )
    assert "age_s 1.2096e+06 -> 60, flag off -> on" in one_line(entry)
    assert "flag off -> on: taken back alone" in explanation(entry)


def test_what_fails_is_not_tried_all_day_long(tmp_path: Path) -> None:
    controller = small(tmp_path, "apply", bounds={"changes_per_day": 2})
    live = controller.live
    assert isinstance(live, FileScheduler)
    controller.tick()
    live.refuses = True
    numbers = []
    for size in (100, 200, 300):
        asked = actions.propose(controller.ledger, {"priority_weight_job_size": size}, "ann", live.clock.now_s(), approved=True)
        numbers.append(asked.id)
        for _ in range(3):
            controller.tick()
    assert [controller.ledger.entry(number).state for number in numbers] == ["failed", "failed", "refused"]
    assert live.reloads <= 8, "each is tried once and taken back"


def test_quiet_hours_hold_changes_back(tmp_path: Path) -> None:
    controller = small(tmp_path, "apply", bounds={"quiet": ["00:00-24:00"]})
    controller.tick()
    asked = actions.propose(controller.ledger, {"priority_weight_job_size": 100}, "ann", controller.live.clock.now_s(), approved=True)
    controller.tick()
    assert "quiet hours" in controller.ledger.entry(asked.id).why
    assert controller.live.settings() == START


def test_a_cluster_that_does_not_answer_is_said_once(tmp_path: Path) -> None:
    controller = small(tmp_path)
    live = controller.live
    assert isinstance(live, FileScheduler)
    controller.tick()
    live.down = True
    for _ in range(3):
        controller.tick()
    assert not controller.state.healthy
    live.down = False
    controller.tick()
    assert controller.state.healthy
    told = [line[3] for line in controller.ledger.log()]
    assert told.count("no answer") == 1
    assert told.count("answers") == 2


def test_a_change_by_somebody_else_is_noted_and_left_alone(tmp_path: Path) -> None:
    controller = small(tmp_path)
    live = controller.live
    assert isinstance(live, FileScheduler)
    controller.tick()
    live.running = START.extend(priority_weight_age=7)
    live.path.write_text(json.dumps(live.running.to_json()))
    controller.tick()
    assert [line[4] for line in controller.ledger.log() if line[3] == "changed outside"] == ["priority_weight_age 1000 -> 7"]
    assert live.running["priority_weight_age"] == 7


def test_its_own_changes_are_not_taken_for_somebody_elses(tmp_path: Path) -> None:
    controller = small(tmp_path, "propose")
    controller.tick()
    now_s = controller.live.clock.now_s()
    first = actions.propose(controller.ledger, {"priority_weight_job_size": 100}, "ann", now_s)
    actions.propose(controller.ledger, {"priority_weight_job_size": 10}, "ann", now_s)
    actions.approve(controller.ledger, first.id, "bob", now_s)
    controller.tick()
    controller.tick()
    assert controller.ledger.entry(first.id).state == "applied"
    assert "changed outside" not in [line[3] for line in controller.ledger.log()]


def test_a_request_that_has_become_stale_is_refused(tmp_path: Path) -> None:
    controller = small(tmp_path)
    live = controller.live
    assert isinstance(live, FileScheduler)
    controller.tick()
    asked = actions.propose(controller.ledger, {"priority_weight_job_size": 100}, "ann", live.clock.now_s(), approved=True)
    live.running = START.extend(priority_weight_age=7)
    controller.tick()
    assert "changed since" in controller.ledger.entry(asked.id).why


def test_a_clock_that_goes_back_is_said_and_survived(tmp_path: Path) -> None:
    controller = small(tmp_path)
    controller.tick()
    controller.live.clock.sleep(-1)  # a virtual clock refuses that
    controller.live.clock._now_s -= 500.0  # type: ignore[attr-defined]
    controller.tick()
    assert "clock" in [line[3] for line in controller.ledger.log()]
    assert controller.state.healthy


def test_a_new_controller_says_that_the_clock_is_behind_the_ledger(tmp_path: Path) -> None:
    controller = small(tmp_path)
    controller.live.clock.sleep(86_400.0)
    controller.tick()
    controller.close()
    second = small(tmp_path)  # whose clock begins a day earlier
    second.tick()
    assert [line[4] for line in second.ledger.log() if line[3] == "clock"] == [
        "the clock went back by 86400 s; decisions wait until it has caught up"
    ]


def test_events_that_no_rule_allows_are_left_out_and_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    controller = small(tmp_path)
    at_s = controller.live.clock.now_s()
    told = [JobEvent(job=name, kind="submit", at_s=at_s, attributes={"gpus": 1.0}) for name in ("fine", "n" * 300)]
    seen = controller.live.look
    monkeypatch.setattr(controller.live, "look", lambda: replace(seen(), events=told))
    for _ in range(2):
        controller.tick()
    assert controller.repository.jobs("lab").jobs.job_id.tolist() == ["fine"]
    lines = [line[4] for line in controller.ledger.log() if line[3] == "left out"]
    assert len(lines) == 1
    assert lines[0].startswith("1 events are not kept, such as: job nnn")


def test_a_new_controller_continues_where_the_old_one_was(tmp_path: Path) -> None:
    controller = small(tmp_path)
    controller.tick()
    asked = actions.propose(controller.ledger, {"priority_weight_job_size": 100}, "ann", controller.live.clock.now_s(), approved=True)
    controller.close()
    second = small(tmp_path)
    second.tick()
    assert second.ledger.entry(asked.id).state == "applied"
    assert sum(entry.kind == "hourly" for entry in second.ledger.history()) == 1, "the hour is not over"


@pytest.mark.parametrize("wanted", [{}, {"nothing": 1}, {"priority_weight_age": "many"}, {"priority_weight_age": 1.5}])
def test_requests_that_make_no_sense(tmp_path: Path, wanted: dict[str, Any]) -> None:
    controller = small(tmp_path)
    controller.tick()
    with pytest.raises(ConfigError):
        actions.propose(controller.ledger, wanted, "ann", 0.0)


def test_what_if_on_the_current_queue(tmp_path: Path) -> None:
    controller = replay(tmp_path, "observe", every="30d")
    controller.run(until_s=BEGIN_S + 2 * HOUR_S)
    rows = dict(controller.what_if("threshold"))
    assert controller.state.cluster_state is not None
    listed = controller.live.space(controller.state.cluster_state.cluster).knobs["threshold"].values
    now = controller.live.settings()["threshold"]
    assert set(rows) == {*listed, now}, "all of them, however long loading the simulator took"
    assert rows[now] == pytest.approx(1.0)
    with pytest.raises(ConfigError, match="no such knob"):
        controller.what_if("treshold")
    log = controller.ledger.log()
    controller.look()
    assert controller.ledger.log() == log, "a question leaves nothing behind"


def test_what_if_does_not_stop_for_its_processor_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = {"kind": "replay", "trace": "synthetic:philly:300:4:1", "cluster": "3x8", "scheduler": "slurm", "start": str(BEGIN_S)}
    settings = build_settings({"cluster": "toy", "live": live, "folder": str(tmp_path)}, "test")
    controller = Controller(settings, Replay({key: value for key, value in live.items() if key != "kind"}))
    controller.look()
    hours = iter(range(0, 10**9, 3_600))
    monkeypatch.setattr("autosched.control.decide.cpu_s", lambda: float(next(hours)))  # as if the kernels had to be compiled
    values = [value for value, _ in controller.what_if("priority_weight_job_size")]
    assert len(values) == 7
    assert controller.state.cluster_state is not None
    assert values == list(controller.live.space(controller.state.cluster_state.cluster).knobs["priority_weight_job_size"].values)


def test_values_without_a_gain_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    cli.show_what_if([(0, 1.0), (5, math.nan)], "weight", as_json=False)
    shown = capsys.readouterr().out
    assert "1.000x" in shown
    assert "No gain is known for 5:" in shown
    cli.show_what_if([(0, 1.0), (5, math.nan)], "weight", as_json=True)
    assert json.loads(capsys.readouterr().out)["gains"] == [{"value": 0, "gain": 1.0}, {"value": 5, "gain": None}]


def test_what_if_of_a_knob_that_means_nothing_now(tmp_path: Path) -> None:
    live = {"kind": "replay", "trace": "synthetic:philly:300:4:1", "cluster": "3x8", "scheduler": "slurm", "start": str(BEGIN_S)}
    settings = build_settings({"cluster": "toy", "live": live, "folder": str(tmp_path)}, "test")
    controller = Controller(settings, Replay({key: value for key, value in live.items() if key != "kind"}))
    controller.look()
    now = controller.live.settings()
    assert now["priority_weight_job_size"] == 0
    with pytest.raises(ConfigError, match=r"means nothing with the settings in force: it needs .*priority_weight_job_size"):
        controller.what_if("priority_favor_small")


def test_files_are_found_next_to_the_file_that_names_them(tmp_path: Path) -> None:
    path = tmp_path / "control.yaml"
    path.write_text("cluster: lab\nlive: {kind: slurm}\nservice: {tokens: tokens, certificate: /etc/own.pem}\n")
    found = read_settings(path)
    assert found.service is not None
    assert (found.service.tokens, found.service.certificate, found.service.key) == (str(tmp_path / "tokens"), "/etc/own.pem", None)
    assert found.target == str(tmp_path / "control" / "control.db")


def test_settings_name_all_faults_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        build_settings({"cluster": "", "live": {}, "mode": "destroy", "tuning": {"draws": 1}, "nonsense": 1}, "control.yaml")
    assert {fault.field for fault in caught.value.faults} == {"cluster", "mode", "tuning.draws", "nonsense"}


def test_a_file_that_only_looks_like_a_mapping(tmp_path: Path) -> None:
    (tmp_path / "control.yaml").write_text("!!set {cluster, live}\n")
    with pytest.raises(ConfigError, match=r"control.yaml:1.*must be a mapping"):
        read_settings(tmp_path / "control.yaml")
