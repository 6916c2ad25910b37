"""Executors on clusters: `python -m benchmarks.executors [--only NAME ...] [--trials N] [--sleep S] [--seed N] [--json] [--write]`.

Two questions. How long does a trial take that does nothing, on each executor: what is not the trial is overhead. And how busy are 16 GPUs
(two machines with eight) while trials that only sleep, with 1, 2, 4 or 8 GPUs each, are run on them through an allocation of a real Slurm.
The clusters are started by the benchmark on this machine: real programs, GPUs that are names only.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from autoscout.core.launch import Launch, Resources
from autoscout.execute.hosts.executor import HostsExecutor
from autoscout.execute.hosts.options import HostsOptions
from autoscout.execute.local import LocalExecutor, LocalOptions
from autoscout.execute.slurm.executor import SlurmExecutor
from autoscout.execute.slurm.options import SlurmOptions

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
import _slurm as slurm  # noqa: E402 - the small clusters of the tests
import _ssh_hosts as ssh_hosts  # noqa: E402

PAGE = ROOT / "docs" / "lab" / "results" / "executors.md"
SIZES, WEIGHTS = (1, 2, 4, 8), (4, 3, 2, 1)
GPUS = 16
EMPTY = 10  # trials that do nothing, after one that warms up


@contextmanager
def in_slurm(folder: Path) -> Iterator[None]:
    """A Slurm of two machines with eight GPUs each, for the programs of this process."""
    with slurm.SlurmCluster(folder / "slurm", nodes=2, gpus=8, cpus=16, memory_mb=16000, accounting=False) as cluster:
        before = dict(os.environ)
        os.environ.update({name: cluster.environment[name] for name in ("SLURM_CONF", "PATH")})
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def overhead(executor: Any) -> dict[str, float]:
    """Seconds of trials that do nothing, one after the other."""
    executor.submit(Launch(argv=("true",))).result()
    taken: list[float] = []
    for _ in range(EMPTY):
        started_s = time.monotonic()
        executor.submit(Launch(argv=("true",))).result()
        taken.append(time.monotonic() - started_s)
    return {"median_s": statistics.median(taken), "least_s": min(taken), "most_s": max(taken), "trials": len(taken)}


def overheads(folder: Path, only: list[str]) -> dict[str, dict[str, float]]:
    """For each executor that can be started here."""
    found: dict[str, dict[str, float]] = {}

    def measure(name: str, make: Callable[[], Any]) -> None:
        if not only or name in only:
            with make() as executor:
                found[name] = overhead(executor)

    measure("local", lambda: LocalExecutor(LocalOptions()))
    if not slurm.missing(accounting=False):
        with in_slurm(folder):
            measure("slurm, a job each", lambda: SlurmExecutor(SlurmOptions()))
            measure("slurm, held allocation", lambda: SlurmExecutor(SlurmOptions(mode="allocation")))
    if not ssh_hosts.missing():
        with ssh_hosts.SshHosts(folder / "hosts", 1) as hosts:
            measure("hosts", lambda: HostsExecutor(HostsOptions(hostfile=hosts.hostfile(1), ssh=hosts.ssh)))
    try:
        import ray  # noqa: F401
    except ImportError:
        return found
    from autoscout.execute.ray.executor import RayExecutor
    from autoscout.execute.ray.options import RayOptions

    measure("ray", lambda: RayExecutor(RayOptions(address="local", cpus=2)))
    return found


def mixed(folder: Path, trials: int, sleep_s: float, seed: int) -> dict[str, Any]:
    """Trials of mixed sizes, all submitted at once, on an allocation of 16 GPUs."""
    rng = random.Random(seed)
    sizes = rng.choices(SIZES, WEIGHTS, k=trials)
    lengths_s = [round(rng.uniform(0.5, 1.5) * sleep_s, 2) for _ in sizes]
    options = SlurmOptions(mode="allocation", slots=GPUS, nodes=2, gpus_per_node=8, cpus_per_node=16)
    line = 'date +%s.%N > began; sleep "$LENGTH"; date +%s.%N > ended'
    with in_slurm(folder), SlurmExecutor(options) as executor:
        executor.submit(Launch(argv=("true",))).result()  # the allocation is granted
        submitted_s = time.time()
        jobs = [
            executor.submit(
                Launch(argv=(line,), shell=True, env={"LENGTH": str(length_s)}, outputs=("began", "ended"), resources=Resources(gpus=size))
            )
            for size, length_s in zip(sizes, lengths_s, strict=True)
        ]
        answers = [job.result() for job in jobs]
        whole_s = time.time() - submitted_s
    ran = [(float(one.outputs["began"]), float(one.outputs["ended"])) for one in answers]
    busy_gpu_s = sum(size * (ended_s - began_s) for size, (began_s, ended_s) in zip(sizes, ran, strict=True))
    last_begun_s = max(began_s for began_s, _ in ran) - submitted_s
    until_last = sum(
        size * max(0.0, min(ended_s, submitted_s + last_begun_s) - began_s) for size, (began_s, ended_s) in zip(sizes, ran, strict=True)
    )
    return {
        "trials": trials,
        "ended_well": sum(one.returncode == 0 for one in answers),
        "sleep_s": sleep_s,
        "makespan_s": whole_s,
        "busy": busy_gpu_s / (GPUS * whole_s),
        "busy_until_last_start": until_last / (GPUS * last_begun_s),
        "longest_wait_s": {
            str(size): max(began_s - submitted_s for each, (began_s, _) in zip(sizes, ran, strict=True) if each == size) for size in SIZES
        },
        "counts": {str(size): sizes.count(size) for size in SIZES},
        "seed": seed,
    }


def page(found: Mapping[str, Any]) -> str:
    """The figures as a page of results."""
    lines = [
        "# Executors on clusters",
        "",
        f"`{found['command']}` at commit {found['commit']}, {found['machine']}.",
        "The clusters run on this one machine: real Slurm, sshd and Ray, GPUs that are names only, trials that do nothing or sleep.",
        f"Load of the machine at the start: {found['load'][0]:.1f}, at the end: {found['load'][1]:.1f}.",
    ]
    if found["overhead"]:
        lines += [
            "",
            "## Overhead of a trial",
            "",
            "Seconds from `submit` to the result for a command that does nothing, one after the other.",
            "",
            "| executor | median | least | most | trials |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| {name} | {one['median_s']:.2f} | {one['least_s']:.2f} | {one['most_s']:.2f} | {one['trials']} |"
            for name, one in found["overhead"].items()
        ]
    one = found.get("mixed")
    if one:
        waits = ", ".join(f"{size} GPUs: {wait_s:.0f} s" for size, wait_s in one["longest_wait_s"].items())
        counts = ", ".join(f"{count} with {size}" for size, count in one["counts"].items())
        lines += [
            "",
            "## Mixed sizes on 16 GPUs",
            "",
            f"{one['trials']} trials ({counts} GPUs) that sleep {one['sleep_s'] / 2:g} to {one['sleep_s'] * 1.5:g} s,",
            f"all submitted at once, on a held allocation of two nodes with eight GPUs; seed {one['seed']}.",
            "A GPU counts as busy while the command of its trial runs: starting and ending a trial counts as idle.",
            "",
            f"- {one['ended_well']} of {one['trials']} ended well, in {one['makespan_s']:.0f} s.",
            f"- Busy: {one['busy']:.1%} of the whole time, {one['busy_until_last_start']:.1%} until the last trial began.",
            f"- Longest wait: {waits}.",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and print or write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="names of executors; `mixed` for the trials of mixed sizes")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--sleep", type=float, default=20.0, help="mean seconds of a trial of mixed sizes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="the figures as JSON, on the last line")
    parser.add_argument("--write", action="store_true", help="write docs/lab/results/executors.md")
    given = parser.parse_args()
    load = [os.getloadavg()[0]]
    found: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks.executors", *sys.argv[1:]]),
        "commit": subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip(),
        "machine": f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}",
        "overhead": {},
    }
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="autoscout-bench-")))
        if given.only != ["mixed"]:
            found["overhead"] = overheads(folder, [name for name in given.only if name != "mixed"])
        if not given.only or "mixed" in given.only:
            found["mixed"] = mixed(folder / "mixed", given.trials, given.sleep, given.seed)
    found["load"] = [load[0], os.getloadavg()[0]]
    if given.write:
        PAGE.write_text(page(found), encoding="utf-8")
    print(json.dumps(found) if given.json else page(found))


if __name__ == "__main__":
    main()
