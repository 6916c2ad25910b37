"""The controller on a real Slurm: what it reads and changes, and what happens when slurmctld is killed, hangs, or the controller dies."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from _slurm_loop import controller_of

import _slurm as slurm
from _slurm import SlurmCluster
from autosched.control import actions
from autosched.control.change import has_settings
from autosched.control.controller import Controller
from autosched.control.ledger import Ledger
from autosched.live.slurm import LiveSlurm
from autosched.live_scheduler import ClusterState, LiveError
from autoscout.core.config import Config

LOOP = Path(__file__).with_name("_slurm_loop.py")
OPTIONS = {
    "PriorityType": "priority/multifactor",
    "PriorityWeightAge": 1000,
    "PriorityCalcPeriod": 1,
    "SchedulerParameters": "bf_interval=1,bf_max_job_test=50",
}
KILLS, IN_MID_APPLY = 50, 10

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    if reason := slurm.missing():
        pytest.skip(reason)
    with SlurmCluster(tmp_path_factory.mktemp("slurm"), nodes=2, gpus=4, options=OPTIONS) as made:
        yield made


@pytest.fixture
def conf(cluster: SlurmCluster) -> Path:
    return Path(cluster.environment["SLURM_CONF"])


@pytest.fixture
def controller(conf: Path, tmp_path: Path) -> Iterator[Controller]:
    made = controller_of(str(conf), str(tmp_path))
    yield made
    made.close()


def ask(controller: Controller, **wanted: float) -> int:
    return actions.propose(controller.ledger, wanted, "test", time.time(), approved=True).id


def test_what_is_read(cluster: SlurmCluster, conf: Path) -> None:
    live = LiveSlurm({"conf": str(conf)})
    first = cluster.run("sbatch", "--parsable", "--gpus-per-node=4", "--nodes=2", "--time=5", "--wrap", "sleep 300").strip()
    second = cluster.run("sbatch", "--parsable", "--gpus-per-node=1", "--nodes=1", "--time=5", "--wrap", "sleep 300").strip()
    cluster.wait_until(lambda: cluster.jobs().get(int(first)) == "RUNNING", "the first job runs")
    cluster_state = live.look()
    assert cluster_state.cluster.gpus == 8
    snapshot = cluster_state.snapshot
    jobs = zip(snapshot.jobs.job_id.tolist(), snapshot.running.tolist(), snapshot.jobs.gpus.tolist(), strict=True)
    assert sorted(jobs) == sorted([(first, True, 8.0), (second, False, 1.0)])
    assert cluster_state.settings["priority_weight_age"] == 1000
    assert cluster_state.settings["bf_max_job_test"] == 50
    cluster.run("scancel", first, second)
    cluster.wait_until(lambda: not cluster.jobs(), "both are gone")
    cluster.wait_until(lambda: {"cancel"} <= {event.kind for event in live.look().events if event.job == first}, "accounting knows")


def test_json_and_text_say_the_same(cluster: SlurmCluster, conf: Path) -> None:
    submit = ("sbatch", "--parsable", "--wrap", "sleep 300")
    first = cluster.run(*submit, "--gpus-per-node=4", "--nodes=2", "--time=5", '--job-name=a|b"c').strip()
    tasks = [number * number for number in range(30)]  # more text than Slurm prints of an array unless it is asked for all
    asked = f"--array={','.join(map(str, tasks))}%2"
    array = cluster.run(*submit, "--gpus-per-node=1", asked, "--time=1-00:00:00", '--job-name="quoted').strip()
    endless = cluster.run(*submit, "--gpus-per-node=a100:2", "--job-name=two\nlines").strip()
    cluster.wait_until(lambda: "RUNNING" in cluster.jobs().values(), "the first job runs")
    live = {output: LiveSlurm({"conf": str(conf), "output": output}) for output in ("json", "text", "auto")}
    states = {output: one.look() for output, one in live.items()}
    assert states["json"].cluster == states["text"].cluster == states["auto"].cluster

    def rows(cluster_state: ClusterState) -> list[tuple[object, ...]]:
        jobs, kept = cluster_state.snapshot.jobs, cluster_state.snapshot
        columns = (jobs.job_id, jobs.gpus, jobs.submit_s, jobs.kind.texts(), jobs.extra["estimate_s"], kept.running)
        return sorted(zip(*(list(column) for column in columns), strict=True))

    assert rows(states["json"]) == rows(states["text"]) == rows(states["auto"])
    names = [row[0] for row in rows(states["json"])]
    assert names == sorted([first, *(f"{array}_{task}" for task in tasks), endless])
    assert [one.snapshot.where.tolist() for one in states.values()] == [states["json"].snapshot.where.tolist()] * 3
    assert abs(states["json"].snapshot.executed_s.max() - states["text"].snapshot.executed_s.max()) <= 3.0
    cluster.run("scancel", first, array, endless)
    cluster.wait_until(lambda: not cluster.jobs(), "all are gone")

    def told(output: str) -> set[tuple[str, str, float]]:
        events = LiveSlurm({"conf": str(conf), "output": output}).look().events
        return {(event.job, event.kind, event.at_s) for event in events if event.job in (first, endless)}

    cluster.wait_until(lambda: {kind for _, kind, _ in told("json")} == {"submit", "start", "cancel"}, "accounting knows")
    assert told("json") == told("text")


def test_a_change_and_its_rollback(controller: Controller, conf: Path) -> None:
    controller.tick()
    before, text = controller.live.settings(), conf.read_text()
    number = ask(controller, priority_weight_job_size=500, bf_max_job_test=100)
    controller.tick()
    entry = controller.ledger.entry(number)
    assert entry.state == "applied", entry.why
    assert controller.live.settings() == before.extend(priority_weight_job_size=500, bf_max_job_test=100)
    changed = set(conf.read_text().splitlines()) ^ set(text.splitlines())
    assert len(changed) == 4, "one line changed, one comment and one line added"
    assert any(path.read_text() == text for path in conf.parent.glob("slurm.conf.autoscout-*")), "the old file is kept"
    actions.roll_back(controller.ledger, number, "test", "asked for", time.time())
    controller.tick()
    assert controller.ledger.entry(number).state == "undone"
    assert controller.live.settings() == before
    assert conf.read_text() == text, "byte for byte: git and Ansible see no drift"


def test_a_slurmctld_that_hangs(cluster: SlurmCluster, controller: Controller, conf: Path) -> None:
    controller.tick()
    live = controller.live
    assert isinstance(live, LiveSlurm)
    live._options = live._options.model_copy(update={"timeout_s": 3.0, "reconfigure_s": 3.0})
    before, text = live.settings(), conf.read_text()
    number = ask(controller, priority_weight_job_size=700)
    real = live._reconfigure

    def hang_then_reconfigure() -> None:
        cluster.hang_controller()
        real()

    live._reconfigure = hang_then_reconfigure  # type: ignore[method-assign]
    try:
        controller.tick()
        assert controller.ledger.entry(number).state == "unsure"
        assert conf.read_text() == text, "the old file is back"
        controller.tick()
        assert not controller.state.healthy
    finally:
        cluster.wake_controller()
        live._reconfigure = real  # type: ignore[method-assign]
    cluster.wait_until(lambda: "UP" in cluster.run("scontrol", "ping", check=False), "it answers again")

    def settled() -> bool:  # what was queued meanwhile is answered first
        controller.tick()
        return controller.ledger.entry(number).state == "failed" and controller.state.healthy

    cluster.wait_until(settled, "the change is taken back")
    assert live.settings() == before


def test_a_slurmctld_that_is_killed(cluster: SlurmCluster, controller: Controller, conf: Path) -> None:
    controller.tick()
    live = controller.live
    assert isinstance(live, LiveSlurm)
    live._options = live._options.model_copy(update={"timeout_s": 3.0, "reconfigure_s": 3.0})
    before, text = live.settings(), conf.read_text()
    number = ask(controller, priority_weight_job_size=800)
    cluster.kill_controller()
    controller.tick()
    assert controller.ledger.entry(number).state == "approved", "nothing is tried on a cluster that cannot be seen"
    assert not controller.state.healthy
    with pytest.raises(LiveError):
        live.settings()
    assert conf.read_text() == text
    cluster.start_controller()
    cluster.wait_until(lambda: set(cluster.states().values()) == {"idle"}, "all nodes are back")
    controller.tick()
    assert controller.ledger.entry(number).state == "applied"
    actions.roll_back(controller.ledger, number, "test", "asked for", time.time())
    controller.tick()
    assert live.settings() == before


def test_a_slurmctld_that_reports_an_old_configuration(controller: Controller, conf: Path) -> None:
    controller.tick()
    live = controller.live
    assert isinstance(live, LiveSlurm)
    before, text = live.settings(), conf.read_text()
    number = ask(controller, priority_weight_job_size=900)
    live._reconfigure = lambda: None  # type: ignore[method-assign] - as if it had not listened
    controller.tick()
    entry = controller.ledger.entry(number)
    assert entry.state == "failed"
    assert "reports other settings" in entry.why
    assert conf.read_text() == text
    assert live.settings() == before


def test_a_slurmctld_that_refuses_to_reconfigure(cluster: SlurmCluster, controller: Controller, conf: Path) -> None:
    """Somebody has changed a plugin, which needs a restart: from then on every reconfigure is refused, though weights take."""
    controller.tick()
    live, text = controller.live, conf.read_text()
    before = live.settings()
    edited = text.rstrip("\n") + "\nSchedulerType=sched/builtin\n"
    conf.write_text(edited)
    number = ask(controller, priority_weight_job_size=300)
    controller.tick()
    entry = controller.ledger.entry(number)
    assert (entry.state, "edited since slurmctld last read it" in entry.why) == ("failed", True), "it would put the edit in force"
    assert conf.read_text() == edited
    cluster.run("scontrol", "reconfigure", check=False)
    number = ask(controller, priority_weight_job_size=400)
    controller.tick()
    assert controller.ledger.entry(number).state == "unsure"
    controller.tick()
    entry = controller.ledger.entry(number)
    assert entry.state == "failed"
    assert "SchedulerType change requires restart" in entry.why
    assert conf.read_text() == edited, "somebody else's edit stays"
    assert live.settings() == before
    log = [(line[2], line[3]) for line in controller.ledger.log()]
    assert log.count((number, "intent")) == 1, "and it is not tried again"
    conf.write_text(text)
    cluster.run("scontrol", "reconfigure")


def test_a_file_that_cannot_be_replaced(controller: Controller, conf: Path) -> None:
    """slurm.conf mounted into a container is a mount point: nothing can take its place."""
    controller.tick()
    before, text = controller.live.settings(), conf.read_text()
    if subprocess.run(["mount", "--bind", str(conf), str(conf)], capture_output=True, check=False).returncode:
        pytest.skip("may not mount here")
    try:
        number = ask(controller, priority_weight_job_size=500)
        controller.tick()
    finally:
        subprocess.run(["umount", str(conf)], check=True)
    entry = controller.ledger.entry(number)
    assert (entry.state, "cannot be written" in entry.why) == ("failed", True), entry.why
    assert conf.read_text() == text
    assert controller.live.settings() == before
    assert not list(conf.parent.glob(".*.partial"))


def loop(conf: Path, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(LOOP), str(conf), str(folder)], start_new_session=True)


def wait_for(condition: object, patience_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + patience_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline_s, "waited too long"
        time.sleep(0.01)


def kill_again_and_again(conf: Path, folder: Path, kills: int, in_mid_apply: int) -> None:
    """Kill a controller that is asked for one change after another; after every kill there is one valid configuration."""
    chance = random.Random(7)
    live = LiveSlurm({"conf": str(conf)})
    process = loop(conf, folder)
    try:
        wait_for((folder / "control.db").exists)
        ledger = Ledger(folder / "control.db", "scratch")
        asked: list[int] = []
        for number in range(kills):
            wait_for(lambda: (seen := ledger.last_sample()) is not None and Config(seen[1]["settings"]) == live.settings())
            wanted = {"priority_weight_job_size": 1 + number}
            asked.append(actions.propose(ledger, wanted, "test", time.time(), approved=True).id)
            if number < in_mid_apply:
                wait_for(lambda: ledger.entry(asked[-1]).state != "approved")
                time.sleep(chance.random() * 0.05)
            else:
                time.sleep(chance.random() * 1.5)
            process.send_signal(signal.SIGKILL)
            process.wait()
            stored = [line for line in conf.read_text().splitlines() if line.startswith("PriorityWeightJobSize")]
            assert len(stored) <= 1
            process = loop(conf, folder)
            wait_for(lambda: ledger.entry(asked[-1]).state in ("applied", "failed"))
            entry = ledger.entry(asked[-1])
            assert has_settings(live.settings(), entry.after if entry.state == "applied" else entry.before), (entry.state, entry.why)
            if entry.state == "applied":  # so that the next one is not held back
                ledger.move(entry, "kept", time.time(), "kept", "")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    events = [(line[2], line[3]) for line in ledger.log()]
    for number in asked:
        assert events.count((number, "applied")) + events.count((number, "failed")) == 1, "once"
        assert events.count((number, "intent")) == 1
    print({state: sum(ledger.entry(number).state == state for number in asked) for state in ("kept", "failed")})
    ledger.close()


def test_kill_9_of_the_controller(conf: Path, cluster: SlurmCluster, tmp_path: Path) -> None:
    kill_again_and_again(conf, tmp_path / "control", 3, 2)


@pytest.mark.soak
def test_fifty_kills(conf: Path, cluster: SlurmCluster, tmp_path: Path) -> None:
    kill_again_and_again(conf, tmp_path / "control", KILLS, IN_MID_APPLY)
