"""Studies for the tests of the dashboard, in a real store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autosched.control.ledger import Entry, Ledger
from autoscout.core.config import Config
from autoscout.core.origin import Origin
from autoscout.core.protocols import StudyRecord
from autoscout.core.task import Budget, Direction, Limit, Objective, Task
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.store.sql.store import SqlStore
from autoscout.study.about import ABOUT, About, KnobAbout
from autoscout.web.library import Library

TOKEN = "a-token-that-nobody-guesses"
HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


def make_task(**changes: Any) -> Task:
    objective = Objective(metric="output_throughput", direction=Direction.MAXIMIZE, limits=(Limit.parse("p95_ttft_ms<=60"),))
    given: dict[str, Any] = {"system": "command", "objective": objective, "workload": {"prompt_tokens": 128}, "budget": Budget(trials=40)}
    return Task(**(given | changes))


def make_trial(number: int, *, hostile: str = "") -> Trial:
    """A trial whose answer follows from its number."""
    threads, batch, flash = (1, 2, 4, 8)[number % 4], 64 * 2 ** (number // 4 % 5), number % 3 == 0
    config = Config(threads=4, batch=768, flash=False) if number == 0 else Config(threads=threads, batch=batch, flash=flash)
    failed = number % 11 == 7
    rate = 20.0 * threads**0.5 * (1.3 if flash else 1.0) + batch / 100 + number % 5
    answer = Measurement(
        status=Status.OOM_START if failed else Status.OK,
        metrics={} if failed else {"output_throughput": rate, "p95_ttft_ms": 20.0 + batch / 16},
        conditions={"predicted": rate * 1.1},
        cost_s=2.0,
        reason=f"CUDA out of memory {hostile}" if failed else "",
        log_tail=f"\x1b[31mTraceback\x1b[0m {hostile}\nHF_TOKEN=hf_abcdefghijklmnopqrst" if failed else "",
        folder=f"launch-{number}",
    )
    by = "default" if number == 0 else "hybrid"
    # A repeat of its own for each: the store keeps one trial per configuration and repeat.
    proposal = Proposal(config=config, origin=Origin(by=by), repeat=0 if number < 20 else -number)
    begun_s = 1_700_000_000.0 + 2 * number
    return Trial(proposal=proposal, measurement=answer, started_s=begun_s, finished_s=begun_s + 2, worker=f"host:{number % 2}:1:b:n:m")


def make_record(name: str = "engine", **changes: Any) -> StudyRecord:
    knobs = (
        KnobAbout(name="threads", values=(1, 2, 4, 8), help="threads that compute"),
        KnobAbout(name="batch", unit="tokens", ends=(64, 1024)),
        KnobAbout(name="flash", values=(False, True)),
    )
    about = About(default={"threads": 4, "batch": 768, "flash": False}, knobs=knobs, load="128 prompts by one client")
    record = StudyRecord(name=name, task=make_task(), space="s", spec={ABOUT: about.to_json()}, created_s=1_700_000_000.0)
    return replace(record, **changes)


def make_study(place: Path, count: int = 40, *, name: str = "engine", hostile: str = "", **changes: Any) -> SqlStore:
    """A store with one study; the caller closes it."""
    store = SqlStore(place / "store.db")
    store.open(make_record(name, **changes))
    store.append(name, [make_trial(number, hostile=hostile) for number in range(count)])
    return store


def make_folder(root: Path, *, hostile: str = "") -> Path:
    """A result folder with launches, as a study leaves it."""
    home = root / "engine"
    home.mkdir(parents=True)
    make_study(home, hostile=hostile).close()
    (home / "campaign.yaml").write_text("system: command\nname: engine\n")
    (home / "trials.jsonl").touch()
    launch = home / "trials" / "launch-7"
    launch.mkdir(parents=True)
    (launch / "command.txt").write_text(f"engine --threads 8 --api-key sk-abcdefghijklmnop1234 {hostile}\n")
    (launch / "env.txt").write_text("export HF_TOKEN=hf_abcdefghijklmnopqrst\n")
    (launch / "stderr.log").write_text(f"CUDA out of memory {hostile}\nAuthorization: Bearer abcdefgh12345678\n")
    return root


def cluster_entries(library: Library) -> Sequence[Any]:
    """The controlled clusters that a dashboard shows, by name."""
    return [entry for extension in library.extensions for entry in extension.entries()]


def make_clusters(place: Path, *, hostile: str = "") -> None:
    """A store with two controlled clusters: `lab`, of which a change was taken back, and `attic`, which is simulated."""
    place.parent.mkdir(parents=True, exist_ok=True)
    old, new = (Config(priority_weight_age=value, frozen=7, favor_small=False) for value in (1, 5))
    for name, simulated in ((f"lab{hostile}"[:200], False), ("attic", True)):
        ledger = Ledger(place, name)
        for hour in range(48):
            settings = (new if 20 <= hour < 30 else old).to_json()
            told = {"load": 0.5 + hour / 48, "waiting": hour % 12, "running": 9, "settings": settings}
            ledger.sample(1_700_000_000.0 + 3_600.0 * hour, told | ({"simulated": True} if simulated else {}))
        if not simulated:
            at_s = 1_700_000_000.0
            ledger.add(
                Entry(at_s=at_s, state="same", kind="hourly", before=old, after=old, words=f"nothing better {hostile}"), "decided", ""
            )
            change = Entry(
                at_s=at_s + 72_000.0,
                state="undone",
                kind="hourly",
                before=old,
                after=new,
                predicted=1.2,
                low=1.05,
                high=1.4,
                measured=0.95,
                applied_s=at_s + 72_010.0,
                words=f"the queue is long {hostile}",
                contributions={"priority_weight_age": 1.1},
                diff="-PriorityWeightAge=1\n+PriorityWeightAge=5",
            )
            ledger.add(change, "undone", f"rolled back {hostile}")
            back = Entry(at_s=at_s + 108_000.0, state="applied", kind="rollback", before=new, after=old, of=2, applied_s=at_s + 108_010.0)
            ledger.add(back, "applied", "")
        ledger.close()
