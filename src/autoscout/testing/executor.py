"""What every executor must do. Subclass `ExecutorSuite` in a test module and give it a fixture `executor`:

    class TestMyExecutor(ExecutorSuite):
        @pytest.fixture
        def executor(self, tmp_path):
            with build(MyExecutor, tmp_path / "trials") as executor:
                yield executor

Needs no pytest itself; the methods are plain functions of an executor and of a folder `tmp_path` that both sides can see. They run real
processes, and wait for conditions instead of guessing durations. An executor that offers less says so with a class attribute
(`calls_in_process`, `hands_out_slots_only`).
"""

from __future__ import annotations

import functools
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autoscout.core.errors import LaunchError
from autoscout.core.launch import Completed, Launch, Resources
from autoscout.core.plugins import option_names, options_type
from autoscout.core.protocols import Executor, Job

PATIENCE_S = 120.0
"""How long to wait for what should come at once: only a broken executor waits so long, whatever the machine is busy with."""

HANG_S = 3600.0

# Leaves its session and its parent, as a daemon does, and tells its number; keeps the streams open unless told to close them.
ESCAPE = """
import os, sys, time
from pathlib import Path
pid_file = Path(sys.argv[1])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        partial = pid_file.with_suffix(".partial")
        partial.write_text(str(os.getpid()))
        partial.rename(pid_file)
        time.sleep(3600)
    os._exit(0)
while not pid_file.exists():
    time.sleep(0.01)
"""

IGNORE_TERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
STAY = "time.sleep(3600)\n"


def build(kind: Any, folder: Path, slots: int = 1) -> Any:
    """An executor as a study builds it: told those of `folder` and `slots` that its options declare; quick to kill where it can be told."""
    options, offered = options_type(kind), {"folder": folder, "slots": slots, "grace_s": 0.5}
    names = option_names(kind)
    return kind() if options is None else kind(options=options(**{name: value for name, value in offered.items() if name in names}))


def python(code: str, *arguments: object, **launch: Any) -> Launch:
    """A launch that runs Python code."""
    return Launch(argv=(sys.executable, "-c", code, *map(str, arguments)), **launch)


def shell(line: str, **launch: Any) -> Launch:
    """A launch that runs a shell line."""
    return Launch(argv=(line,), shell=True, **launch)


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Wait until something holds; fail after a very long time."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"waited {PATIENCE_S:.0f} s for this: {what}"
        time.sleep(0.02)


def finish(executor: Executor, launch: Launch) -> Completed:
    """Run a launch to its end."""
    return executor.submit(launch).result(PATIENCE_S)


def refusal(executor: Executor, launch: Launch) -> LaunchError | None:
    """The error with which a launch is refused; None when it is taken (and then cancelled)."""
    try:
        executor.submit(launch).cancel()
    except LaunchError as error:
        return error
    return None


def give(value: Any) -> Any:
    """Returns what it is given: a call that pickles."""
    return value


def raise_error(message: str) -> None:
    """Raises."""
    raise ValueError(message)


def hang() -> None:
    """Does not return for an hour."""
    time.sleep(HANG_S)


def die() -> None:
    """Ends its process by a signal."""
    os.kill(os.getpid(), signal.SIGKILL)


class ProcessSuite:
    """Commands: what they get, what comes back, how they end."""

    def test_is_an_executor(self, executor: Executor) -> None:
        assert isinstance(executor, Executor)
        assert executor.slots >= 1

    def test_brings_back_what_was_said_and_the_exit_code(self, executor: Executor) -> None:
        completed = finish(executor, python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"))
        assert (completed.returncode, completed.stdout, completed.stderr) == (7, "out\n", "err\n")
        assert completed.error == ""
        assert not any((completed.timed_out, completed.out_of_memory, completed.cancelled))

    def test_is_a_context_manager(self, executor: Any) -> None:
        with executor as entered:
            job = entered.submit(shell("sleep 3600"))
        assert job.result(PATIENCE_S).cancelled, "leaving the block closes it"

    def test_a_job_looks_like_a_job(self, executor: Executor) -> None:
        job = executor.submit(python("pass"))
        assert isinstance(job, Job)
        assert job.result(PATIENCE_S) == job.result(), "the result stays"
        assert job.done()

    def test_a_signal_is_a_negative_exit_code(self, executor: Executor) -> None:
        completed = finish(executor, python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"))
        assert completed.returncode == -signal.SIGSEGV
        killed = finish(executor, python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"))
        assert killed.returncode == -signal.SIGKILL
        assert not killed.out_of_memory, "a SIGKILL alone does not prove that memory ran out"

    def test_files_and_outputs_lie_in_a_folder_of_its_own(self, executor: Executor) -> None:
        launch = shell(
            'cat "{folder}/in/a.txt" > b.txt; pwd > where.txt; echo "$PLACE"',
            files={"in/a.txt": "naïve\n"},
            env={"PLACE": "{folder}/in"},
            outputs=("b.txt", "where.txt", "in/a.txt", "never.txt"),
            name="files",
        )
        one, other = finish(executor, launch), finish(executor, launch)
        assert one.outputs["b.txt"] == one.outputs["in/a.txt"] == "naïve\n"
        assert "never.txt" not in one.outputs
        folder = Path(one.outputs["where.txt"].strip())
        assert one.stdout.strip() == str(folder / "in"), "{folder} is replaced in argv and env by the folder the command runs in"
        assert one.outputs["where.txt"] != other.outputs["where.txt"], "equal launches do not share a folder"

    def test_other_braces_are_left_alone(self, executor: Executor) -> None:
        argument = '{"a": {}, "b": "{x}"}'
        assert json.loads(finish(executor, python("import sys; print(sys.argv[1])", argument)).stdout) == json.loads(argument)

    def test_environment_is_added_to_the_callers(self, executor: Executor) -> None:
        code = "import os, json; print(json.dumps([os.environ.get('PATH'), os.environ.get('SUITE_SAYS')]))"
        completed = finish(executor, python(code, env={"SUITE_SAYS": "hello"}))
        path, says = json.loads(completed.stdout)
        assert says == "hello"
        assert path

    def test_a_command_that_asks_gets_no_answer(self, executor: Executor) -> None:
        assert finish(executor, python("import sys; print(repr(sys.stdin.read()))")).stdout == "''\n"

    def test_a_missing_program_is_told_not_raised(self, executor: Executor) -> None:
        completed = finish(executor, Launch(argv=("autoscout-suite-no-such-program",), name="missing"))
        assert completed.returncode is None
        assert "autoscout-suite-no-such-program" in completed.error

    def test_garbage_is_survived(self, executor: Executor) -> None:
        code = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 4 + b'\\nend'); sys.stderr.buffer.write(b'\\xff\\xfe')"
        launch = python(code + "; open('out', 'wb').write(b'\\x80\\x00')", outputs=("out",))
        completed = finish(executor, launch)
        assert completed.returncode == 0
        assert completed.stdout.endswith("end")
        assert "out" in completed.outputs

    def test_a_flood_is_bounded_and_its_end_kept(self, executor: Executor) -> None:
        code = "import sys\nfor _ in range(600): sys.stdout.write('x' * 65535 + '\\n')\nprint('the end')"
        completed = finish(executor, python(code))
        assert completed.returncode == 0
        assert completed.stdout.endswith("the end\n")
        assert len(completed.stdout) < 600 * 65536 / 2, "what is handed on is bounded"

    def test_circumstances_are_measured(self, executor: Executor) -> None:
        burn = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
        completed = finish(executor, python(burn, "import time\nwhile time.process_time() < 0.4: pass"))
        assert completed.cpu_s > 0.35, "children's CPU time counts"
        assert 0 < completed.wall_s < PATIENCE_S
        assert completed.peak_memory_gb > 0
        assert all(isinstance(value, float) and math.isfinite(value) for value in completed.conditions.values())

    def test_broken_launches_are_refused_with_all_faults(self, executor: Executor) -> None:
        broken = Launch(argv=("true",), files={"/etc/x": "", "../y": ""}, outputs=("../../z",), limit_s=-1.0)
        error = refusal(executor, broken)
        assert error is not None, "a launch that would write outside its folder was accepted"
        assert {fault.field for fault in error.faults} >= {"files", "outputs", "limit_s"}
        assert len(error.faults) >= 4
        assert refusal(executor, Launch()), "nothing to run"
        assert refusal(executor, Launch(argv=("true",), call=functools.partial(give, 1))), "two things to run"


class StopSuite:
    """Limits, cancelling, closing, and that nothing is left behind."""

    def is_alive(self, pid: int) -> bool:
        """Whether a process of a launch still runs; override where launches run on other machines."""
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True

    def test_a_hang_meets_its_limit(self, executor: Executor) -> None:
        completed = finish(executor, shell("echo begun; sleep 3600", limit_s=2.0))
        assert completed.timed_out
        assert completed.returncode is None
        assert completed.stdout == "begun\n"
        assert completed.wall_s >= 2.0

    def test_a_hang_that_ignores_the_request_to_end_is_killed(self, executor: Executor, tmp_path: Path) -> None:
        ready = tmp_path / "ready"
        code = IGNORE_TERM + "import sys, time; from pathlib import Path; Path(sys.argv[1]).write_text('')\n" + STAY
        job = executor.submit(python(code, ready))
        wait_for(ready.exists, "the program ignores SIGTERM now")
        job.cancel()
        assert job.result(PATIENCE_S).cancelled

    def test_a_command_is_asked_to_end_before_it_is_killed(self, executor: Executor, tmp_path: Path) -> None:
        code = (
            "import signal, sys, time; from pathlib import Path\n"
            "signal.signal(signal.SIGTERM, lambda *_: (Path('tidied').write_text('yes'), sys.exit(0)))\n"
            "Path(sys.argv[1]).write_text('')\n" + STAY
        )
        job = executor.submit(python(code, tmp_path / "ready", outputs=("tidied",)))
        wait_for((tmp_path / "ready").exists, "the program listens")
        job.cancel()
        completed = job.result(PATIENCE_S)
        assert completed.outputs == {"tidied": "yes"}
        assert completed.cancelled
        assert completed.returncode is None, "ended by us, however it answered"

    def test_children_do_not_outlive_their_command(self, executor: Executor, tmp_path: Path) -> None:
        completed = finish(executor, shell('sleep 3600 & echo $! > "$PID_FILE"', env={"PID_FILE": str(tmp_path / "pid")}))
        assert completed.returncode == 0
        assert not self.is_alive(int((tmp_path / "pid").read_text()))

    def test_children_that_left_the_session_do_not_either(self, executor: Executor, tmp_path: Path) -> None:
        completed = finish(executor, python(ESCAPE, tmp_path / "pid"))
        assert completed.returncode == 0, completed.log_tail
        assert not self.is_alive(int((tmp_path / "pid").read_text()))

    def test_a_stubborn_child_that_left_the_session_is_killed(self, executor: Executor, tmp_path: Path) -> None:
        job = executor.submit(python(IGNORE_TERM + ESCAPE + STAY, tmp_path / "pid"))
        wait_for((tmp_path / "pid").exists, "the child has left")
        pid = int((tmp_path / "pid").read_text())
        assert self.is_alive(pid)
        job.cancel()
        assert job.result(PATIENCE_S).cancelled
        assert not self.is_alive(pid)

    def test_cancel_twice_and_after_the_end(self, executor: Executor, tmp_path: Path) -> None:
        job = executor.submit(shell('touch "$READY"; sleep 3600', env={"READY": str(tmp_path / "ready")}))
        wait_for((tmp_path / "ready").exists, "the command runs")
        try:
            job.result(0.01)
        except TimeoutError:
            assert not job.done()
        else:
            raise AssertionError("result did not wait")
        job.cancel()
        job.cancel()
        completed = job.result(PATIENCE_S)
        assert completed.cancelled
        assert not completed.timed_out
        job.cancel()
        assert job.result() == completed
        finished = executor.submit(python("print(1)"))
        assert finished.result(PATIENCE_S).returncode == 0
        finished.cancel()
        assert not finished.result().cancelled

    def test_cancel_what_still_waits(self, executor: Executor, tmp_path: Path) -> None:
        running = [executor.submit(shell("sleep 3600")) for _ in range(executor.slots)]
        waiting = executor.submit(shell('touch "$RAN"', env={"RAN": str(tmp_path / "ran")}))
        waiting.cancel()
        assert waiting.result(PATIENCE_S).cancelled
        for job in running:
            job.cancel()
        assert all(job.result(PATIENCE_S).cancelled for job in running)
        assert finish(executor, python("pass")).returncode == 0, "the slots are free again"
        assert not (tmp_path / "ran").exists()

    def test_close_ends_everything(self, executor: Executor, tmp_path: Path) -> None:
        jobs = [executor.submit(python(ESCAPE + STAY, tmp_path / f"pid{number}")) for number in range(executor.slots + 1)]
        wait_for((tmp_path / "pid0").exists, "the first one runs")
        executor.close()
        assert all(job.result(PATIENCE_S).cancelled for job in jobs)
        assert not any(self.is_alive(int(path.read_text())) for path in tmp_path.glob("pid?"))
        executor.close()
        assert refusal(executor, python("pass")), "a closed executor took a launch"


class CallSuite:
    """Calls."""

    def test_a_call_gives_its_value(self, executor: Executor) -> None:
        completed = finish(executor, Launch(call=functools.partial(give, {"a": [1, 2.5]}), name="call"))
        assert completed.value == {"a": [1, 2.5]}
        assert (completed.returncode, completed.error) == (0, "")

    def test_a_call_that_raises_tells_where(self, executor: Executor) -> None:
        completed = finish(executor, Launch(call=functools.partial(raise_error, "three is too many")))
        assert "ValueError: three is too many" in completed.error
        assert "raise_error" in completed.error
        assert completed.value is None
        assert completed.returncode != 0

    def test_a_call_that_hangs_meets_its_limit(self, executor: Executor) -> None:
        completed = finish(executor, Launch(call=hang, limit_s=1.0))
        assert completed.timed_out
        assert finish(executor, Launch(call=functools.partial(give, 3))).value == 3, "the slot is free again"

    def test_a_call_can_be_cancelled(self, executor: Executor) -> None:
        job = executor.submit(Launch(call=hang))
        job.cancel()
        assert job.result(PATIENCE_S).cancelled

    def test_a_call_that_kills_its_process_harms_nobody(self, executor: Executor) -> None:
        if executor.calls_in_process:
            return
        completed = finish(executor, Launch(call=die))
        assert completed.returncode == -signal.SIGKILL
        assert completed.error

    def test_a_call_that_does_not_pickle_is_refused(self, executor: Executor) -> None:
        local = 3
        launch = Launch(call=lambda: local)
        if executor.calls_in_process:
            assert finish(executor, launch).value == 3
        else:
            assert "pickle" in str(refusal(executor, launch))


class SlotSuite:
    """Sharing."""

    limits_memory = True  # set to False for an executor that has no means to

    def test_no_more_than_its_slots_run_together(self, executor: Executor, tmp_path: Path) -> None:
        code = (
            "import sys, time; from pathlib import Path\n"
            "mine = Path(sys.argv[1]) / sys.argv[2]; mine.write_text('')\n"
            "print(len(list(mine.parent.iterdir()))); time.sleep(0.2); mine.unlink()\n"
        )
        jobs = [executor.submit(python(code, tmp_path, number)) for number in range(2 * executor.slots + 1)]
        together = [int(job.result(PATIENCE_S).stdout) for job in jobs]
        assert max(together) <= executor.slots
        assert min(together) >= 1

    def test_submit_is_safe_from_many_threads(self, executor: Executor) -> None:
        answers: dict[int, Any] = {}

        def work(number: int) -> None:
            answers[number] = finish(executor, shell(f"echo {number}")).stdout.strip()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert answers == {number: str(number) for number in range(6)}

    def test_the_impossible_is_refused_at_once(self, executor: Executor) -> None:
        if executor.hands_out_slots_only:
            return
        for resources in (Resources(gpus=10_000), Resources(cpus=100_000), Resources(memory_gb=1e9)):
            error = refusal(executor, python("pass", resources=resources))
            assert error is not None, f"would wait forever for {resources}"
            assert error.faults[0].field.startswith("resources.")
        assert finish(executor, python("pass")).returncode == 0

    def test_memory_is_limited_over_the_whole_family(self, executor: Executor) -> None:
        if not self.limits_memory:
            return
        # Two processes of 200 MB each under a limit of 300 MB, so that neither alone is over it.
        code = "import os, time\nos.fork()\nhold = bytearray(os.urandom(1 << 20) * 200)\ntime.sleep(3600)"
        completed = finish(executor, python(code, resources=Resources(memory_gb=0.3)))
        assert completed.out_of_memory
        assert completed.returncode is None or completed.returncode < 0
        assert completed.peak_memory_gb > 0.2
        small = finish(executor, python("hold = bytearray(50 << 20)", resources=Resources(memory_gb=0.3)))
        assert (small.returncode, small.out_of_memory) == (0, False)


class ExecutorSuite(ProcessSuite, StopSuite, CallSuite, SlotSuite):
    """The contract of `autoscout.core.protocols.Executor`, one method per rule."""
