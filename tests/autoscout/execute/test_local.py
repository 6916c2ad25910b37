"""What the local executor does beyond the suite: sharing the machine, files, and surviving the death of everybody involved."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autoscout.common import processes
from autoscout.core.errors import ConfigError, LaunchError
from autoscout.core.launch import Launch, Resources
from autoscout.execute._shared.supervisor import client
from autoscout.execute._shared.threads import THREAD_VARIABLES
from autoscout.execute.local import LocalExecutor, LocalOptions
from autoscout.testing.executor import ESCAPE, PATIENCE_S, STAY, finish, python, shell, wait_for

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
two_cores = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")

SHOW = """
import json, os
names = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
print(json.dumps({"cores": sorted(os.sched_getaffinity(0)), **{name: os.environ.get(name) for name in names}}))
"""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):  # it may go between the two looks
        return False
    return state != "Z"  # orphans of killed test processes wait for whoever is process 1 here


def children(pid: int) -> list[int]:
    return [int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()]


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.fixture
def clean_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[LocalExecutor]:
    with LocalExecutor(LocalOptions(folder=tmp_path, grace_s=0.5)) as executor:
        yield executor


# --- sharing the machine ---------------------------------------------------------------------------------------------


@linux_only
@two_cores
@pytest.mark.usefixtures("clean_threads")
def test_each_slot_has_cores_and_threads_of_its_own() -> None:
    together = "\nimport sys, time; from pathlib import Path; me = Path(sys.argv[1]); me.write_text('')\n"
    together += "while len(list(me.parent.glob('*.here'))) < 2: time.sleep(0.01)\n"
    with LocalExecutor(LocalOptions(slots=2, cores=CORES[:2])) as executor:
        folder = Path(executor._settings.folder)
        folder.mkdir(parents=True)
        jobs = [executor.submit(python(SHOW + together, folder / f"{number}.here")) for number in range(2)]
        seen = [json.loads(job.result(PATIENCE_S).stdout) for job in jobs]
    assert sorted(one["cores"] for one in seen) == [[CORES[0]], [CORES[1]]]
    assert {one["OMP_NUM_THREADS"] for one in seen} == {one["MKL_NUM_THREADS"] for one in seen} == {"1"}


@linux_only
@two_cores
@pytest.mark.usefixtures("clean_threads")
def test_threads_are_left_alone_when_the_launch_or_nobody_needs_them_set() -> None:
    with LocalExecutor(LocalOptions(slots=2, cores=CORES[:2])) as executor:
        own = json.loads(finish(executor, python(SHOW, env={"OMP_NUM_THREADS": "7"})).stdout)
        whole = json.loads(finish(executor, python(SHOW, resources=Resources(cpus=2))).stdout)
    assert (own["OMP_NUM_THREADS"], own["MKL_NUM_THREADS"]) == ("7", None), "a launch that sets one sets all"
    assert (whole["cores"], whole["OMP_NUM_THREADS"]) == (CORES[:2], None), "the whole machine is what engines assume anyway"


@linux_only
def test_pinning_can_be_switched_off() -> None:
    with LocalExecutor(LocalOptions(slots=2, pin=False)) as executor:
        assert json.loads(finish(executor, python(SHOW)).stdout)["cores"] == CORES


@linux_only
def test_trials_of_different_sizes_share_the_gpus(tmp_path: Path) -> None:
    hold = "\nimport sys, time; from pathlib import Path\nwhile not Path(sys.argv[1]).exists(): time.sleep(0.01)\n"
    release = tmp_path / "go"
    with LocalExecutor(LocalOptions(slots=4, gpus=(0, 1, 2), pin=False)) as executor:
        small = [executor.submit(python(SHOW + hold, release, resources=Resources(cpus=0, gpus=1))) for _ in range(2)]
        pair = executor.submit(python(SHOW, resources=Resources(cpus=0, gpus=2), name="pair"))
        none = executor.submit(python(SHOW, resources=Resources(cpus=0)))
        seen = json.loads(none.result(PATIENCE_S).stdout)
        assert seen["CUDA_VISIBLE_DEVICES"] == seen["HIP_VISIBLE_DEVICES"] == "", "beside others, GPUs not asked for are hidden"
        assert not pair.done(), "two GPUs are not free yet"
        release.touch()
        visible = [json.loads(job.result(PATIENCE_S).stdout)["CUDA_VISIBLE_DEVICES"] for job in [*small, pair]]
    assert visible[:2] == ["0", "1"]
    assert len(set(visible[2].split(","))) == 2


@linux_only
def test_alone_a_trial_may_see_gpus_that_nobody_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    with LocalExecutor() as executor:
        assert json.loads(finish(executor, python(SHOW)).stdout)["CUDA_VISIBLE_DEVICES"] == "3,5"
        assert json.loads(finish(executor, python(SHOW, resources=Resources(gpus=1))).stdout)["CUDA_VISIBLE_DEVICES"] == "3"
        with pytest.raises(LaunchError, match="has 2 GPUs"):
            executor.submit(python(SHOW, resources=Resources(gpus=3)))


def test_options_are_checked_all_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        LocalOptions(slots=0, cores=[99999], memory_gb=-1.0, keep_files="some", grace_s=-1.0)
    assert {fault.field for fault in caught.value.faults} == {"slots", "cores", "memory_gb", "keep_files", "grace_s"}


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_trial_leaves_what_is_needed_to_repeat_it(executor: LocalExecutor, tmp_path: Path) -> None:
    launch = shell('echo "$GREETING" > result; echo said', env={"GREETING": "it's me"}, files={"in.txt": "x"}, name="mbs8 tp=2/a")
    completed = finish(executor, launch)
    folder = tmp_path / "trials" / "mbs8-tp=2-a"
    assert completed.folder == str(folder)
    assert (folder / "stdout.log").read_text() == "said\n"
    assert (folder / "stderr.log").read_text() == ""
    (folder / "result").unlink()
    again = subprocess.run(["sh", "-c", '. ./env.txt; eval "$(cat command.txt)"'], cwd=folder, capture_output=True, text=True, check=True)
    assert again.stdout == "said\n"
    assert (folder / "result").read_text() == "it's me\n"
    assert sorted(path.name for path in folder.iterdir()) == ["command.txt", "env.txt", "in.txt", "result", "stderr.log", "stdout.log"]
    assert finish(executor, launch).folder == f"{folder}-2"


@pytest.mark.parametrize(("keep", "left"), [("all", {"bad", "good"}), ("failed", {"bad"}), ("none", set())])
def test_which_folders_stay(tmp_path: Path, keep: str, left: set[str]) -> None:
    with LocalExecutor(LocalOptions(folder=tmp_path, keep_files=keep)) as executor:
        good = finish(executor, shell("echo 1 > out", name="good", outputs=("out",)))
        bad = finish(executor, shell("exit 3", name="bad"))
    assert good.outputs == {"out": "1\n"}
    assert (bool(good.folder), bool(bad.folder)) == ("good" in left, "bad" in left)
    assert {path.name for path in (tmp_path / "trials").iterdir()} == left


def test_a_temporary_folder_goes_with_the_executor() -> None:
    with LocalExecutor() as executor:
        folder = Path(finish(executor, shell("true")).folder)
        assert folder.is_dir()
    assert not folder.parent.parent.exists()


def test_a_log_on_disk_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    code = "print('first')\nfor _ in range(100): print('x' * 9999)\nprint('last')"
    with LocalExecutor(LocalOptions(folder=tmp_path, log_mb=0.1, tail_kb=10)) as executor:
        completed = finish(executor, python(code, name="chatty"))
    text = (tmp_path / "trials" / "chatty" / "stdout.log").read_text()
    assert text.startswith("first\n")
    assert text.endswith("x\nlast\n")
    assert "bytes left out" in text
    assert len(text) < 0.1 * 2**20 + 10 * 2**10 + 100
    assert completed.stdout.endswith("last\n")
    assert len(completed.stdout) == 10 * 1024


def test_a_call_finds_its_folder_and_brings_back_outputs(executor: LocalExecutor) -> None:
    completed = finish(executor, Launch(call=write_note, outputs=("note.txt",)))
    assert completed.outputs == {"note.txt": "from a call"}
    assert completed.value == str(Path.cwd()), "calls run where the caller is"


def write_note() -> str:
    Path(os.environ["AUTOSCOUT_FOLDER"], "note.txt").write_text("from a call")
    return str(Path.cwd())


def test_a_result_that_does_not_pickle_is_told(executor: LocalExecutor) -> None:
    completed = finish(executor, Launch(call=give_lambda))
    assert "does not pickle" in completed.error
    assert completed.returncode == 0


def give_lambda() -> object:
    return lambda: None


def test_strange_bytes_travel_unchanged(executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANGE", os.fsdecode(b"\xff\n\xe4"))
    code = "import os, sys; print([os.environb[b'STRANGE'], os.fsencode(sys.argv[1])])"
    assert finish(executor, python(code, os.fsdecode(b"a\xfe'\n\""))).stdout.strip() == repr([b"\xff\n\xe4", b"a\xfe'\n\""])


# --- scripts ---------------------------------------------------------------------------------------------------------


def run_script(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(text))
    return subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_functions_of_a_users_script_can_be_called(tmp_path: Path) -> None:
    answer = run_script(
        tmp_path,
        """
        from functools import partial
        from autoscout.core.launch import Launch
        from autoscout.execute.local import LocalExecutor

        def square(x):
            return x * x

        if __name__ == "__main__":
            with LocalExecutor() as executor:
                print(executor.submit(Launch(call=partial(square, 7))).result().value)
        """,
    )
    assert answer.stdout == "49\n", answer.stderr


def test_a_script_without_a_guard_does_not_start_itself_for_ever(tmp_path: Path) -> None:
    answer = run_script(
        tmp_path,
        """
        from autoscout.core.launch import Launch
        from autoscout.execute.local import LocalExecutor

        def square():
            return 49

        with LocalExecutor() as executor:
            completed = executor.submit(Launch(call=square)).result()
            print(completed.returncode, completed.value)
            print(completed.error.splitlines()[-1])
        """,
    )
    first, second = answer.stdout.splitlines()
    assert first == "None None"
    assert "if __name__ == '__main__'" in second


# --- deaths ----------------------------------------------------------------------------------------------------------

OWNER = """
import os, sys, time
from autoscout.core.launch import Launch
from autoscout.execute.local import LocalExecutor, LocalOptions
executor = LocalExecutor(LocalOptions(folder=sys.argv[1], grace_s=0.5))
code, pid_file, how = sys.argv[2:]
job = executor.submit(Launch(argv=(sys.executable, "-c", code, pid_file)))
while not os.path.exists(pid_file):
    time.sleep(0.01)
if how == "return":
    sys.exit(0)
time.sleep(3600)
"""


StartOwner = Callable[[str], tuple[subprocess.Popen[bytes], int]]


@pytest.fixture
def start_owner(tmp_path: Path) -> Iterator[StartOwner]:
    """Starts another AutoScout with a trial whose child has left its session; gives the process and that child."""
    owners: list[subprocess.Popen[bytes]] = []

    def start(how: str) -> tuple[subprocess.Popen[bytes], int]:
        command = [sys.executable, "-c", OWNER, str(tmp_path / "results"), ESCAPE + STAY, str(tmp_path / "pid"), how]
        owners.append(subprocess.Popen(command))
        wait_for((tmp_path / "pid").exists, "the trial's child has left its session")
        return owners[-1], int((tmp_path / "pid").read_text())

    yield start
    for owner in owners:
        owner.kill()
        owner.wait()


@linux_only
def test_when_autoscout_is_killed_its_trials_go_too(start_owner: StartOwner) -> None:
    owner, escaped = start_owner("stay")
    supervisors = children(owner.pid)
    family = [pid for supervisor in supervisors for pid in children(supervisor)]
    assert family
    owner.kill()
    owner.wait()
    wait_for(lambda: not any(map(alive, [escaped, *family, *supervisors])), "trial, its escaped child and the supervisor are gone")


@linux_only
def test_when_autoscout_ends_without_closing_its_trials_go_too(start_owner: StartOwner) -> None:
    owner, escaped = start_owner("return")
    assert owner.wait(PATIENCE_S) == 0, "threads of the executor do not hold the interpreter up"
    wait_for(lambda: not alive(escaped), "the escaped child is gone")


@linux_only
def test_when_the_supervisor_is_killed_autoscout_cleans_up(executor: LocalExecutor, tmp_path: Path) -> None:
    job = executor.submit(python(ESCAPE + STAY, tmp_path / "pid"))
    wait_for((tmp_path / "pid").exists, "the trial's child has left its session")
    escaped = int((tmp_path / "pid").read_text())
    supervisor = parent(escaped)  # orphans are adopted by it
    assert parent(supervisor) == os.getpid()
    os.kill(supervisor, signal.SIGKILL)
    completed = job.result(PATIENCE_S)
    assert completed.returncode is None
    assert "supervisor" in completed.error
    wait_for(lambda: not alive(escaped), "the escaped child is gone")
    assert finish(executor, shell("echo on")).stdout == "on\n"


@linux_only
def test_when_both_are_killed_the_next_autoscout_cleans_up(start_owner: StartOwner) -> None:
    owner, escaped = start_owner("stay")
    supervisors = children(owner.pid)
    for pid in [*supervisors, owner.pid]:
        os.kill(pid, signal.SIGSTOP)  # so that neither can react to the death of the other
    for pid in [*supervisors, owner.pid]:
        os.kill(pid, signal.SIGKILL)
    owner.wait()  # from here on any AutoScout of this machine ends the escaped child, that of another test too
    client.sweep_orphans.cache_clear()
    with LocalExecutor() as executor:
        finish(executor, shell("true"))
    wait_for(lambda: not alive(escaped), "the orphan is gone")


@linux_only
def test_a_process_that_keeps_moving_is_caught(executor: LocalExecutor, tmp_path: Path) -> None:
    # Each generation forks the next and ends, ignoring the request to stop: no number stays valid for long.
    code = """
import os, signal, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    Path(sys.argv[1]).write_text("")
    while os.fork() == 0:
        time.sleep(0.001)
    os._exit(0)
time.sleep(3600)
"""
    job = executor.submit(python(code, tmp_path / "ready"))
    wait_for((tmp_path / "ready").exists, "it moves")
    job.cancel()
    completed = job.result(PATIENCE_S)
    assert completed.cancelled
    assert completed.error == "", "all of it could be killed"
    assert not [pid for pid, mark in processes.marked(client.MARK) if f":{os.getpid()}:" in mark]


@linux_only
def test_no_zombies_stay_behind(executor: LocalExecutor) -> None:
    for _ in range(3):
        finish(executor, shell("sleep 0 & true"))
    assert all(map(alive, children(os.getpid()))), "no child of ours waits to be reaped"


def test_leftover_children_are_counted(executor: LocalExecutor) -> None:
    assert finish(executor, shell("sleep 3600 & sleep 3600 & true")).conditions["leftover_processes"] == 2.0
    assert "leftover_processes" not in finish(executor, shell("true")).conditions


@linux_only
def test_contention_is_recorded(executor: LocalExecutor) -> None:
    busy = "import time\nend = time.monotonic() + 1.0\nwhile time.monotonic() < end: pass"
    conditions = finish(executor, python(busy)).conditions
    assert 0 < conditions["cpu_share"] <= 1.2 / len(CORES), "one thread of all cores"
    assert 0 <= conditions["other_cpu_share"] <= 1
    assert conditions["cores"] == len(CORES)
    assert conditions["load_1min"] >= 0
    if Path("/proc/pressure/cpu").exists():
        assert 0 <= conditions["cpu_pressure"] <= 1


@linux_only
def test_others_on_the_same_cores_are_seen(executor: LocalExecutor) -> None:
    spin = "import time\nend = time.monotonic() + float(__import__('sys').argv[1])\nwhile time.monotonic() < end: pass"
    rivals = [subprocess.Popen([sys.executable, "-c", spin, "60"]) for _ in range(2 * len(CORES))]
    try:
        conditions = finish(executor, python(spin, "2")).conditions
    finally:
        for rival in rivals:
            rival.kill()
            rival.wait()
    assert conditions["other_cpu_share"] > 0.3
    if Path("/proc/pressure/cpu").exists():
        assert conditions["cpu_pressure"] > 0.3


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("temporary", [True, False])
def test_a_server_that_gives_up_its_rights_can_enter_its_folder(temporary: bool) -> None:
    change = "import os, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534); os.chdir(sys.argv[1]); print(os.getcwd())"
    before = os.umask(0o077)
    try:
        with tempfile.TemporaryDirectory() as base:
            Path(base).chmod(0o711)
            folder = None if temporary else Path(base, "results", "study")
            with LocalExecutor(LocalOptions(folder=folder)) as executor:
                completed = finish(executor, Launch(argv=(sys.executable, "-c", change, "{folder}"), name="server"))
    finally:
        os.umask(before)
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.strip().endswith("/trials/server")
