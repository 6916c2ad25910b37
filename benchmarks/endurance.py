"""What AutoScout survives: `python -m benchmarks.endurance [--only CASE ...] [--scale SHARE] [--keep FILE] [--again] [--write]`.

Each case breaks one thing, often, in a real study on real programs (SQLite, PostgreSQL, Slurm, sshd, the kernel), and counts what was lost,
measured twice or left running. `--scale 0.01` does a hundredth of each case. A case is done in pieces, each with a seed of its own.
`--keep` adds each piece to a file as soon as it is done, and a later call with the same file does what is missing. `--again` repeats the
pieces in which something went wrong, after it was fixed; `--add` takes in the files of calls that ran at the same time. `--write` makes the
page of what the file holds. `make soak` runs all of it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from autoscout.core.errors import ConfigError
from autoscout.core.journal import read_trials
from benchmarks._endurance_parts import CONTROLLER, apart
from benchmarks._endurance_pieces import Case, Endured, Pieces, page

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "soak")]
import _postgres as postgres  # noqa: E402 - the small servers of the tests
import _slurm as slurm  # noqa: E402
import _ssh_hosts as ssh_hosts  # noqa: E402

PAGE = ROOT / "docs" / "results" / "endurance.md"
TUNE = [sys.executable, "-m", "autoscout"]
PATIENCE_S = 600.0


def campaign(folder: Path, name: str, **changes: Any) -> Path:
    """A study of a program that says when it starts, so that what was started twice shows."""
    command = f"echo {{x}} {{y}} >> {folder}/starts; sleep {changes.pop('sleep_s', 0.2)}; echo score={{x}}"
    data: dict[str, Any] = {
        "system": "command",
        "name": name,
        "workload": {"command": command, "metrics": {"score": {"regex": "score=([0-9]+)"}}},
        "goal": {"metric": "score", "direction": "minimize"},
        "space": {"knobs": {"x": {"range": [0, 99], "default": 50}, "y": {"range": [0, 99], "default": 50}}},
        "budget": {"trials": 100_000},
        "search": {"searcher": "random", "workers": 2},
        "measure": {"dirty_repeats": 0},
        "finals": {"rounds": 0},
        **changes,
    }
    path = folder / "campaign.yaml"
    path.write_text(json.dumps(data))  # JSON is YAML
    return path


@contextlib.contextmanager
def started(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A program in a group of its own, ended at the latest with the block."""
    with (folder / "said").open("ab") as said:
        process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said, start_new_session=True, env=environment)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()  # a study ends its trials then
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30.0)
        process.kill()
        process.wait()


def code_of(process: subprocess.Popen[bytes]) -> int | str:
    """How a program ended; in words when it did not."""
    try:
        return process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        return f"nothing: it ran on for {PATIENCE_S:g} s"


def trial_faults(folder: Path, name: str) -> tuple[int, list[str]]:
    """How many trials a study has, and what is wrong with them: lost ones, doubled ones, numbers with gaps."""
    try:
        trials = read_trials(folder / "autoscout_results" / name)
    except ConfigError as error:
        return 0, [f"{error}: {(folder / 'said').read_text(errors='replace')[-1500:]}"]
    identities = Counter((trial.config, trial.proposal.repeat) for trial in trials)
    faults = [f"{count} times {identity}" for identity, count in identities.items() if count > 1]
    numbers = [trial.number for trial in trials]
    faults += [] if numbers == list(range(len(numbers))) else ["numbers have gaps"]
    return len(trials), faults


def wait_for_a_trial(folder: Path, name: str, process: subprocess.Popen[bytes]) -> None:
    """Until the study has stored a trial, or has ended without."""
    stored = folder / "autoscout_results" / name / "trials.jsonl"
    deadline_s = time.monotonic() + PATIENCE_S
    while process.poll() is None and not (stored.exists() and stored.stat().st_size) and time.monotonic() < deadline_s:
        time.sleep(0.2)


def left_running(folder: Path, patience_s: float = 20.0) -> list[int]:
    """Processes that mention the folder, when time to end has passed."""
    deadline_s = time.monotonic() + patience_s
    while found := [pid for pid in _mentioning(str(folder)) if pid != os.getpid()]:
        if time.monotonic() > deadline_s:
            return found
        time.sleep(0.1)
    return []


def _mentioning(text: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if text.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def kills_of_studies(folder: Path, count: int, rng: random.Random) -> Endured:
    """`kill -9` at random moments, resumed by the same command."""
    campaign(folder, "killed", sleep_s=0.1)
    command = [*TUNE, "tune", "campaign.yaml"]
    acknowledged, left = 0, 0
    wrong: list[str] = []
    for _ in range(count):
        before = _size(folder / "starts")
        with started(command, folder) as process:
            while rng.random() > 1 / 50 and process.poll() is None and _size(folder / "starts") == before:
                time.sleep(0.1)  # now and then the moment comes before the first trial of this run
            time.sleep(1.5 * rng.random())
            process.kill()
            process.wait()
        left += len(left_running(folder / "starts"))
        if (folder / "autoscout_results" / "killed" / "trials.jsonl").exists():
            stored, faults = trial_faults(folder, "killed")
            wrong += faults
            if stored < acknowledged:
                wrong.append(f"{acknowledged - stored} trials lost")
            acknowledged = max(acknowledged, stored)
    done = subprocess.run([*command, "--max-trials", str(acknowledged + 2)], cwd=folder, capture_output=True, text=True, check=False)
    wrong += [f"the last resume ended with {done.returncode}: {done.stderr[-500:]}"] if done.returncode else []
    stored, faults = trial_faults(folder, "killed")
    starts = len((folder / "starts").read_text().splitlines())
    figures = {"trials stored": stored, "lost or doubled": len(faults), "measured again": starts - stored, "processes left": left}
    return _ended(count, figures, [*wrong, *faults, *(["processes were left"] if left else [])])


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def kills_of_the_controller(folder: Path, count: int, rng: random.Random) -> Endured:
    """`kill -9` of a controller that changes settings all the time, many times in the middle of a change."""
    helpers = [str(ROOT / "tests" / "autosched" / "control"), str(ROOT / "tests")]
    command = [sys.executable, "-c", CONTROLLER, *helpers, str(folder)]
    halfway = 0
    for number in range(count):
        process = subprocess.Popen([*command, str(number), "100000"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        process.stdout.readline()  # it works
        time.sleep(0.6 * rng.random())
        process.kill()
        process.communicate()
        halfway += _state_of_newest(folder) in ("applying", "unsure")
    done = subprocess.run([*command, str(count), "3"], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        return _ended(count, {}, [f"the controller did not start again: {done.stderr[-500:]}"])
    end = json.loads(done.stdout.splitlines()[-1])
    open_ones = [state for state, _ in end["states"] if state in ("applying", "unsure")]
    applied = [after for state, after in end["states"] if state in ("applied", "kept")]
    faults = [] if end["running"] == end["file"] else [f"the file has {end['file']}, in force is {end['running']}"]
    faults += [f"{len(open_ones)} decisions without an end"] if open_ones else []
    faults += [] if applied and applied[-1] == end["running"] else ["the ledger's last applied settings are not in force"]
    return _ended(count, {"decisions": len(end["states"]), "killed in the middle of a change": halfway}, faults)


def _state_of_newest(folder: Path) -> str:
    import sqlite3

    for path in folder.rglob("*.db"):
        with contextlib.closing(sqlite3.connect(path)) as connection:
            row = connection.execute("SELECT state FROM autoscout_decisions ORDER BY id DESC LIMIT 1").fetchone()
            return str(row[0]) if row else ""
    return ""


def slurmctld_killed(folder: Path, count: int, rng: random.Random) -> Endured:
    """The controller of Slurm killed and started again while a study runs."""
    if reason := slurm.missing(accounting=False):
        return Endured(skipped=reason)
    with slurm.SlurmCluster(folder / "slurm", nodes=2, gpus=0, cpus=2, memory_mb=4000, accounting=False) as cluster:
        execute = {"executor": "slurm", "options": {"nodes": 2, "time_min": 30}}
        campaign(folder, "slurm", sleep_s=1, execute=execute, budget={"trials": 6 * count + 6})
        kills = 0
        with started([*TUNE, "tune", "campaign.yaml"], folder, {**os.environ, **cluster.environment}) as process:
            wait_for_a_trial(folder, "slurm", process)
            while process.poll() is None and kills < count:
                time.sleep(5.0 + 5.0 * rng.random())
                if process.poll() is None:
                    cluster.kill_controller()
                    time.sleep(2.0 + 6.0 * rng.random())
                    cluster.start_controller()
                    kills += 1
            code = code_of(process)
        jobs = [job for job, state in cluster.jobs().items() if state in ("RUNNING", "PENDING")]
    return _ended(kills, *_of_study(folder, "slurm", code, {"jobs left": len(jobs)}))


def hosts_cut(folder: Path, count: int, rng: random.Random) -> Endured:
    """The network of a host cut and healed while a study runs on two."""
    if reason := ssh_hosts.missing():
        return Endured(skipped=reason)
    with ssh_hosts.SshHosts(folder / "hosts", 2) as hosts:
        options = {"hostfile": str(hosts.hostfile(1)), "ssh": hosts.ssh, "cpus": 2, "grace_s": 0.5}
        campaign(folder, "hosts", sleep_s=1, execute={"executor": "hosts", "options": options}, budget={"trials": 6 * count + 6})
        cuts = 0
        with started([*TUNE, "tune", "campaign.yaml"], folder) as process:
            wait_for_a_trial(folder, "hosts", process)
            while process.poll() is None and cuts < count:
                time.sleep(5.0 + 5.0 * rng.random())
                name = rng.choice(hosts.names)
                hosts.cut(name)
                time.sleep(3.0 + 12.0 * rng.random())
                hosts.heal(name)
                cuts += 1
            code = code_of(process)
        left = sum(len(hosts.running(name)) for name in hosts.names)
    return _ended(cuts, *_of_study(folder, "hosts", code, {"processes left": left}))


def postgres_cut(folder: Path, count: int, rng: random.Random) -> Endured:
    """The network between a study and its database cut and healed: no packet passes, no connection is closed."""
    if reason := postgres.missing() or ssh_hosts.missing():
        return Endured(skipped=reason)
    with postgres.running() as server, apart(server.port) as (here, cut, heal):
        database = server.database().partition("@/")[2].partition("?")[0]
        url = f"postgresql://scout:{postgres.PASSWORD}@{here}/{database}"
        campaign(folder, "database", sleep_s=0.5, store=url, budget={"trials": 12 * count + 12})
        cuts = 0
        with started([*TUNE, "tune", "campaign.yaml"], folder) as process:
            wait_for_a_trial(folder, "database", process)
            while process.poll() is None and cuts < count:
                time.sleep(5.0 + 5.0 * rng.random())
                cut()
                time.sleep(3.0 + 17.0 * rng.random())
                heal()
                cuts += 1
            code = code_of(process)
    said = (folder / "said").read_text(errors="replace")
    figures = {"announced": said.count("has not answered for") + said.count("the server went away")}
    return _ended(cuts, *_of_study(folder, "database", code, figures))


def out_of_memory(folder: Path, count: int, rng: random.Random) -> Endured:
    """The kernel's own killer: the study and its trials in a control group that is too small for some of them."""
    group = Path("/sys/fs/cgroup/memory") / f"endurance-{os.getpid()}"
    limit = "memory.limit_in_bytes"
    if not group.parent.is_dir():
        group, limit = Path("/sys/fs/cgroup") / group.name, "memory.max"
    try:
        group.mkdir()
        (group / limit).write_text(str(600 * 2**20))
    except OSError as error:
        return Endured(skipped=f"no control group of memory can be made here: {error}")
    try:
        eater = f"{sys.executable} -c \"import sys; x = int(sys.argv[1]); held = bytearray(x % 3 * 500 * 2**20); print('score', x)\" {{x}}"
        workload = {"command": eater, "metrics": {"score": {"regex": "score ([0-9]+)"}}}
        space = {"knobs": {"x": {"range": [0, 999], "default": 0}}}
        budget = {"trials": 2 * count, "failures": 1000}
        campaign(
            folder,
            "memory",
            workload=workload,
            space=space,
            budget=budget,
            search={"searcher": "random", "workers": 1, "seed": rng.randrange(10**6)},
        )
        enter = f'echo $$ > {group}/cgroup.procs; exec "$@"'
        with started(["sh", "-c", enter, "sh", *TUNE, "tune", "campaign.yaml"], folder) as process:
            code = code_of(process)
    finally:
        for _ in range(50):
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)
    statuses = Counter(trial.measurement.status.value for trial in read_trials(folder / "autoscout_results" / "memory"))
    killed = statuses["oom_start"] + statuses["oom_run"]
    figures, faults = _of_study(folder, "memory", code, {"ok": statuses["ok"], "out of memory": killed, "other": sum(statuses.values())})
    figures["other"] -= statuses["ok"] + killed
    faults += [f"{figures['other']} trials had another status: {dict(statuses)}"] if figures["other"] else []
    return _ended(killed, figures, faults)


def many_trials(folder: Path, count: int, rng: random.Random) -> Endured:
    """A study from nothing to its last trial in one go."""
    del rng
    program = (
        "import json, resource, sys, time, autoscout\n"
        "count, folder = int(sys.argv[1]), sys.argv[2]\n"
        "space = {name: range(100) for name in 'abcdefghi'}\n"
        "marks, seen = [], [0]\n"
        "def f(config):\n"
        "    seen[0] += 1\n"
        "    if seen[0] % max(1, count // 4) == 0: marks.append((seen[0], time.process_time()))\n"
        "    return float(sum(config.values()))\n"
        "outcome = autoscout.minimize(f, space, trials=count, searcher='random', folder=folder)\n"
        "print(json.dumps({'marks': marks, 'trials': len(outcome.trials), 'cpu_s': time.process_time(),"
        " 'mb': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(count), str(folder / "many")], capture_output=True, text=True, check=False)
    if done.returncode:
        return _ended(0, {}, [done.stderr[-800:]])
    said = json.loads(done.stdout.splitlines()[-1])
    steps = [(0, 0.0), *said["marks"]]
    per_trial = [1000 * (b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(steps)]
    figures = {
        "CPU seconds": round(said["cpu_s"]),
        "CPU ms per trial, quarter by quarter": ", ".join(f"{each:.1f}" for each in per_trial),
        "memory, MB": said["mb"],
    }
    return _ended(said["trials"], figures, [] if said["trials"] >= count else ["the study ended early"])


def fuzzed(folder: Path, count: int, rng: random.Random) -> Endured:
    """Mutated inputs through all readers."""
    del folder
    from fuzz_readers import READERS

    shares, first = sum(reader.share for reader in READERS.values()), rng.randrange(10**6, 10**9)
    shared = [f"{name}={-(-count * reader.share // shares)}" for name, reader in READERS.items()]
    program = [sys.executable, str(ROOT / "tests" / "soak" / "fuzz_run.py"), str(first), *shared]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    parts = [json.loads(line) for line in done.stdout.splitlines()]
    faults = [f"{part['reader']} {each['number']}: {each['kind']}" for part in parts for each in part["findings"]]
    faults += [f"ended after {len(parts)} of {len(READERS)} readers: {done.stderr[-300:]}"] if done.returncode else []
    return _ended(sum(part["ran"] for part in parts), {}, faults)


def _of_study(folder: Path, name: str, code: int | str, figures: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Figures and faults of a study that has ended."""
    stored, faults = trial_faults(folder, name)
    if code:
        faults.append(f"tune ended with {code}: {(folder / 'said').read_text(errors='replace')[-500:]}")
    faults += [f"{count} {what}" for what, count in figures.items() if what.endswith("left") and count]
    left = left_running(folder / "starts")
    return {"trials stored": stored, "lost or doubled": len(faults), **figures, "local processes left": len(left)}, faults


def _ended(done: int, figures: dict[str, Any], faults: Sequence[str]) -> Endured:
    return Endured(done=done, figures=figures, faults=list(faults)[:20])


CASES = {
    "studies": Case("studies killed with -9 at a random moment, local executor, SQLite", 1000, 20, kills_of_studies),
    "controller": Case("controllers killed with -9, also in the middle of a change", 100, 20, kills_of_the_controller),
    "slurmctld": Case("slurmctld killed and started again in the middle of a study", 10, 5, slurmctld_killed),
    "hosts": Case("the network of one of two ssh hosts cut and healed in the middle of a study", 10, 5, hosts_cut),
    "postgres": Case("the network to the PostgreSQL store cut and healed in the middle of a study", 10, 5, postgres_cut),
    "memory": Case("trials killed by the kernel for memory, the study in the same control group", 20, 10, out_of_memory),
    "trials": Case("trials of one study from zero, searcher random, a function that takes no time", 20_000, 20_000, many_trials),
    "fuzz": Case("mutated inputs through all readers of files and messages", 1_000_000, 20_000, fuzzed),
}


def endure(name: str, count: int, seed: int) -> Endured:
    """A piece of a case, in a folder of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory(prefix=f"endurance-{name}-") as folder:
        made = CASES[name].work(Path(folder), count, random.Random(f"{name} {seed}"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return replace(made, count=count, seed=seed, cpu_s=round(cpu_s, 1))


def complete(pieces: Pieces, name: str, count: int, seed: int) -> None:
    """Do what is missing of a case."""
    while (missing := count - pieces.done(name)) > 0:
        piece = endure(name, min(missing, CASES[name].piece), seed + len(pieces.of(name)))
        pieces.add(name, piece)
        if not piece.done and (piece.skipped or piece.faults):
            return


def repeat(pieces: Pieces, name: str) -> None:
    """Do the pieces again in which something went wrong."""
    for piece in pieces.of(name):
        if piece.faults:
            pieces.add(name, replace(endure(name, piece.count, piece.seed), fixed=[*piece.fixed, *piece.faults]))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=[*CASES], default=[*CASES], help="these cases")
    parser.add_argument("--scale", type=float, default=1.0, help="share of each case that is done; 0: none, with --write")
    parser.add_argument("--seed", type=int, default=0, help="of the first piece of each case")
    parser.add_argument("--keep", type=Path, help="collect the pieces in this file, and do only what it lacks")
    parser.add_argument("--add", type=Path, nargs="+", default=[], help="pieces of other calls that ran at the same time")
    parser.add_argument("--again", action="store_true", help="repeat the pieces in which something went wrong")
    parser.add_argument("--write", action="store_true", help="write the page of everything that --keep holds")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was begun is ended
    pieces = Pieces(given.keep)
    for other in map(Pieces, given.add):
        for name in CASES:
            for piece in other.of(name):
                pieces.add(name, piece)
    for name in given.only:
        if given.again:
            repeat(pieces, name)
        complete(pieces, name, math.ceil(CASES[name].whole * given.scale), given.seed)
    if given.write:
        machine = f"On {platform.system()} with {os.cpu_count()} processors, shared with other work (times of the clock say nothing there)."
        PAGE.write_text(page(CASES, pieces, machine), encoding="utf-8")
    return int(any(piece.faults for name in given.only for piece in pieces.of(name)))


if __name__ == "__main__":
    sys.exit(main())
