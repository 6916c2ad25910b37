"""Every reader of the project, with good inputs to begin from."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fuzz_control import CONTROL
from fuzz_launches import LAUNCHES, read_launches
from fuzz_seeds import (
    AMONG,
    CALIBRATION,
    CAMPAIGN,
    CLIENTS,
    ENGINE,
    EXPRESSIONS,
    FIELDS,
    FLAGS,
    FRONT,
    GPUS,
    LOG,
    MODEL,
    NODES,
    PLAN,
    REQUEST_LINES,
    REQUESTS,
    RESULTS,
    SERVING,
    SPACE,
    SWEEPS,
    T4,
    TALKS,
    TEMPLATES,
    TRACES,
    TRAINING,
    TUNING,
)

from autoscout.core.errors import MOST_TEXT, RULE_SHOWN, AutoScoutError

MOST_MESSAGE = MOST_TEXT + 4 * RULE_SHOWN  # characters: the first fault is shown whole, however long


@dataclass(frozen=True)
class Reader:
    """One kind of input."""

    name: str
    form: str  # how it is mutated, see `mutate`
    seeds: Callable[[], list[bytes]]
    read: Callable[[Path], object]  # gets a file that holds the input
    suffix: str = ".txt"
    share: int = 10  # of the inputs of a soak run, relative to the others


def _texts(*texts: str) -> Callable[[], list[bytes]]:
    return lambda: [text.encode() for text in texts]


def _short(error: Exception) -> None:
    if len(str(error)) > MOST_MESSAGE:
        raise RuntimeError(f"a message of {len(str(error))} characters") from error


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def read_space_file(path: Path) -> None:
    from autoscout.space import read_space, write_space

    space = read_space(path)
    space.default()
    space.count()
    write_space(space)


def read_campaign_file(path: Path) -> None:
    from autoscout.study.campaign import read_campaign
    from autoscout.study.setup import prepare

    campaign = read_campaign(path)
    campaign.to_yaml()
    if campaign.system == "command":  # others would look at this machine
        prepare(campaign)


def read_hosts(path: Path) -> None:
    from autoscout.common.files import parse_hostfile

    parse_hostfile(_text(path))


def read_t4(path: Path) -> None:
    from autoscout_lab.bench.tables import find_tables, load_table

    for source in find_tables(str(path)):
        load_table.__wrapped__(source)


def read_manifest(path: Path) -> None:
    from autoscout_lab.bench.tables import find_tables, load_table

    folder = path.parent / "manifest"
    folder.mkdir(exist_ok=True)
    given = _text(path)
    manifest, _, table = given.partition("\n\n")
    (folder / "manifest.json").write_text(manifest, encoding="utf-8", errors="replace")
    (folder / "toy.csv").write_text(table, encoding="utf-8", errors="replace")
    for source in find_tables(str(folder)):
        load_table.__wrapped__(source)


def read_journal(path: Path) -> None:
    from autoscout.core.journal import read_trials

    read_trials(path)


def read_trace(path: Path) -> None:
    from autosched.source import load_trace

    for drop_bad in (False, True):
        try:
            load_trace(str(path), drop_bad=drop_bad)
        except AutoScoutError:
            if drop_bad:
                raise


def read_pai(path: Path) -> None:
    from autosched.source import load_trace

    folder = path.parent / "pai"
    folder.mkdir(exist_ok=True)
    jobs, _, tasks = _text(path).partition("\n\n")
    (folder / "pai_job_table.csv").write_text(jobs, encoding="utf-8", errors="replace")
    (folder / "pai_task_table.csv").write_text(tasks, encoding="utf-8", errors="replace")
    load_trace(str(folder), drop_bad=True)


def read_nodes(path: Path) -> None:
    from autosched.sim.cluster import Cluster

    Cluster.read(path).table()


def read_gguf(path: Path) -> None:
    from autoscout.backends.llamacpp.gguf_file import GgufError, GgufFile

    try:
        _ = GgufFile(path).facts
    except GgufError as error:  # the backend makes a fault of it
        _short(error)


def read_serving_calibration(path: Path) -> None:
    from autoscout.simulators.serving.calibration import serving_calibration

    serving_calibration(path)


def read_training_calibration(path: Path) -> None:
    from autoscout.simulators.training.calibration import training_calibration

    training_calibration(path=path)


def read_gpus(path: Path) -> None:
    from autoscout.catalog import gpus

    gpus._by_alias.cache_clear()
    gpus.cluster("8xMyGPU+1xA100-80", path)


def read_model(path: Path) -> None:
    from autoscout.catalog.models import model

    found = model(str(path))
    _ = found.parameters, found.active_parameters


def read_model_fields(path: Path) -> None:
    from autoscout.common.document import load
    from autoscout.simulators._shared.task import read_cluster
    from autoscout.simulators._shared.task import read_model as model_of

    given = load(path).value
    if not isinstance(given, dict):
        return
    machine = given.get("hardware")
    with suppress(AutoScoutError):
        model_of(given.get("model"))
    read_cluster(machine if isinstance(machine, dict) else {})


def read_flags(path: Path) -> None:
    from autoscout.cli.options import settings

    settings(_text(path).splitlines(), "--workload")


def read_limits(path: Path) -> None:
    from autoscout.core.task import Limit
    from autoscout.study.campaign import duration_s

    text = _text(path)
    for read in (Limit.parse, _duration(duration_s)):
        try:
            read(text)
        except AutoScoutError as error:
            _short(error)


def _duration(read: Callable[[object], float]) -> Callable[[str], object]:
    def inner(text: str) -> object:
        try:
            return read(text)
        except ValueError:  # pydantic makes a fault of it
            return None

    return inner


def read_expression(path: Path) -> None:
    from autoscout.space import Grid, Space
    from autoscout.space.knobs import Choice

    Space([Grid("a", 1, 64), Grid("b", 0.0, 2.0), Choice("c", ["x", "y"])], [_text(path)]).count()


def read_template(path: Path) -> None:
    from autoscout.commands.template import Scope, parse
    from autoscout.core.errors import ConfigError, Fault

    template = parse(_text(path), shell=True)
    if template.faults:
        raise ConfigError([Fault(rule=rule) for rule in template.faults])
    scope = Scope(values={"x": 3, "y": True, "s": "it's", "f": 0.5, "seed": 1}, flags=("x", "y"))
    template.shell(scope)
    template.words(scope)


def read_output(path: Path) -> None:
    from autoscout.backends.command.sources import CommandRun, MetricSource, UnreadableError

    run = CommandRun(stdout=_text(path), wall_s=1.0)
    for source in ({"json": "a.b"}, {"json": "*"}, {"regex": "score ([0-9.]+)"}):
        try:
            if source.get("json") == "*":
                MetricSource.model_validate(source).read_all(run)
            else:
                MetricSource.model_validate(source).read("score", run)
        except UnreadableError as error:  # becomes the reason of a failed trial
            _short(error)


def read_training_csv(path: Path) -> None:
    from autoscout.simulators.training.tables import read_training_table

    read_training_table(path)


def read_serving_csv(path: Path) -> None:
    from autoscout.simulators.serving.tables import read_serving_table

    read_serving_table(path)


def read_gpu_text(path: Path) -> None:
    from autosched.sim.cluster import Cluster
    from autosched.source import load_trace
    from autoscout.catalog.gpus import cluster

    text = _text(path)
    for read in (cluster, lambda given: Cluster.parse(given).table(), lambda given: load_trace(f"synthetic:{given}")):
        try:
            read(text)  # type: ignore[operator]
        except AutoScoutError as error:
            _short(error)


def read_requests(path: Path) -> None:
    from autoscout.load.workload import read_trace

    read_trace(path)


def read_conversations(path: Path) -> None:
    from autoscout.load.workload import read_talks

    read_talks(path)


def read_plan(path: Path) -> None:
    from autoscout.load.plan import TrialPlan

    TrialPlan.read(path).text()


def read_client_result(path: Path) -> None:
    """What programs that produce load leave: each reads every form."""
    from autoscout.load.others import PROGRAMS, Unreadable, read
    from autoscout.load.plan import TrialPlan

    for client, program in PROGRAMS.items():
        place = path.parent / program.output
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(path.read_bytes())
        try:
            read(TrialPlan.of({"serve": ["x", "{port}"], "model": "m", "load": {"client": client}}), path.parent)
        except Unreadable as error:
            _short(error)


def read_trial_results(path: Path) -> None:
    """What the programs of a trial leave; whatever it is, it becomes a measurement."""
    from autoscout.core.launch import Completed
    from autoscout.load import outcome as serving
    from autoscout.load import plan
    from autoscout.training import outcome as training

    text = _text(path)
    for code in (0, 1):
        served = Completed(returncode=code, outputs={plan.RESULT: text, plan.STAGE: "loading", plan.LOG: text}, stderr=text)
        serving.outcome(served).to_json()
        trained = Completed(returncode=code, outputs={training.RESULT: text, training.STAGE: "building"}, stderr=text)
        training.outcome(trained, "step_ms").to_json()


def read_engine_workload(path: Path) -> None:
    from autoscout.common.document import load
    from autoscout.core.errors import ConfigError
    from autoscout.engines.workload import read_workload

    given = load(path).value
    if isinstance(given, dict):
        workload, facts, faults = read_workload(given)
        if faults:
            raise ConfigError(faults)
        assert workload is not None
        workload.to_json(facts)


def read_store(path: Path) -> None:
    """The input is a statement's worth of damage: table, column and the new content of one cell."""
    table, column, content = [*_text(path).split("\n", 2), "", ""][:3]
    place = path.parent / "store.db"
    place.write_bytes(_store_bytes())
    for more in ("-wal", "-shm"):
        (path.parent / f"store.db{more}").unlink(missing_ok=True)
    with sqlite3.connect(place) as connection:
        try:
            connection.execute(f"UPDATE {table} SET {column} = ?", (content,))
        except (sqlite3.Error, UnicodeError, ValueError):
            connection.execute("UPDATE autoscout_trials SET data = ?", (content.replace("\x00", "").encode("utf-8", "replace"),))
    connection.close()
    _use_store(place)


def read_damaged_store(path: Path) -> None:
    _use_store(path)


def _use_store(place: Path) -> None:
    from autoscout.store.sql.store import SqlStore

    with SqlStore(place, create=False) as store:
        for record in store.studies():
            for batch in store.batches(record.name):
                assert batch


@cache
def _store_bytes() -> bytes:
    from autoscout.store.sql.store import SqlStore
    from autoscout.testing.store import record, trial

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "store.db")
        with SqlStore(place) as store:
            store.open(record())
            store.append("study", [trial(1), trial(2)])
            store.append("study", [trial(3)])
        return place.read_bytes()


def _store_cells() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "store.db")
        place.write_bytes(_store_bytes())
        connection = sqlite3.connect(place)
        trial = connection.execute("SELECT data FROM autoscout_trials").fetchone()[0]
        task, spec = connection.execute("SELECT task, spec FROM autoscout_studies").fetchone()
        connection.close()
    cells = [("autoscout_trials", "data", trial), ("autoscout_studies", "task", task), ("autoscout_studies", "spec", spec)]
    cells += [("autoscout_schema", "version", "2"), ("autoscout_trials", "batch", "0"), ("autoscout_studies", "created_s", "1.5")]
    return ["\n".join(cell).encode() for cell in cells]


def _journal_lines() -> list[bytes]:
    from autoscout.core.journal import encode
    from autoscout.testing.store import trial

    return ["".join(encode(trial(number)) + "\n" for number in range(3)).encode()]


@cache
def _gguf_bytes() -> bytes:
    from autoscout.backends.llamacpp.model import RANDOM_MODELS

    with tempfile.TemporaryDirectory() as folder:
        RANDOM_MODELS["random-tiny"].write(Path(folder, "m.gguf"), "q8_0")
        return Path(folder, "m.gguf").read_bytes()[:24_000]  # the header and some of the weights


def _configspaces() -> list[bytes]:
    from autoscout.space import read_space
    from autoscout_lab.configspace import write_configspace

    with tempfile.TemporaryDirectory() as folder:
        write_configspace(read_space(SPACE), Path(folder, "a.json"))
        plain = json.loads(Path(folder, "a.json").read_text())
    found = [json.dumps(plain).encode()]
    plain.pop("autoscout", None)
    return [*found, json.dumps(plain).encode()]


def _manifest() -> list[bytes]:
    params = [
        {"name": "x", "kind": "ordinal", "values": [1, 2]},
        {"name": "k", "kind": "categorical", "values": ["a", "b"], "when": {"x": [1]}},
    ]
    entry = {"toy": {"objective": "min", "unit": "s", "params": params}}
    return [(json.dumps(entry) + "\n\nx,k,value\n1,a,1.5\n1,b,2\n2,,\n").encode()]


READERS = {
    reader.name: reader
    for reader in (
        Reader("space", "yaml", _texts(SPACE, AMONG), read_space_file, ".yaml", 40),
        Reader("space-lines", ":,", _texts(SPACE, AMONG), read_space_file, ".yaml", 10),
        Reader("campaign", "yaml", _texts(CAMPAIGN, FRONT), read_campaign_file, ".yaml", 20),
        Reader("hostfile", "= ", _texts("worker-1 slots=4\nworker-2 slots=4\n# end\n"), read_hosts, share=80),
        Reader("configspace", "json", _configspaces, read_space_file, ".json", 40),
        Reader("sweep", "json", _texts(*SWEEPS), read_space_file, ".json", 40),
        Reader("tuning-space", "json", _texts(TUNING), read_space_file, ".json", 40),
        Reader("t4", "json", _texts(T4), read_t4, ".json", 30),
        Reader("manifest", ",:", _manifest, read_manifest, share=20),
        Reader("journal", "jsonl", _journal_lines, read_journal, ".jsonl", 80),
        Reader("store-cells", "\n", _store_cells, read_store, share=5),
        Reader("store-bytes", "bytes", lambda: [_store_bytes()], read_damaged_store, ".db", 5),
        *(Reader(f"trace-{name}", "|" if name == "sacct" else ",", _texts(text), read_trace, ".csv", 20) for name, text in TRACES.items()),
        Reader("trace-philly-log", "json", _texts(LOG), read_trace, ".json", 20),
        Reader("trace-pai", ",", _texts("j1,i1,u1,T,100.0,400.0\n\nj1,t,2,T,100.0,400.0,600,10,50,V100\n"), read_pai, share=10),
        Reader("nodes", ",", _texts(*NODES), read_nodes, ".csv", 30),
        Reader("gguf", "bytes", lambda: [_gguf_bytes()], read_gguf, ".gguf", 20),
        Reader("calibration-serving", "yaml", _texts(CALIBRATION.format(kind="serving")), read_serving_calibration, ".yaml", 20),
        Reader(
            "calibration-training",
            "yaml",
            _texts(CALIBRATION.format(kind="training") + "memory: {}\nshapes: []\nassumes: {a: 1}\nranges: {tokens: [1, 2]}\n"),
            read_training_calibration,
            ".yaml",
            20,
        ),
        Reader("gpus", "yaml", _texts(GPUS), read_gpus, ".yaml", 20),
        Reader("model", "json", _texts(MODEL), read_model, ".json", 40),
        Reader(
            "model-fields",
            "yaml",
            _texts(FIELDS),
            read_model_fields,
            share=20,
        ),
        Reader("flags", "=.", _texts("\n".join(FLAGS)), read_flags, share=40),
        Reader("limits", "<=:", _texts("p95_ttft_ms<=500", "ttft_ms:p95:le:500", "1h30m"), read_limits, share=100),
        Reader("expression", " (", _texts(*EXPRESSIONS), read_expression, share=60),
        Reader("template", " {}", _texts(*TEMPLATES), read_template, share=60),
        *(Reader(f"launch-{name}", form, _texts(text), read_launches, share=20) for name, (form, text) in LAUNCHES.items()),
        Reader("output", "\n:", _texts('noise\n{"a": {"b": 3}, "c": 1e5}\nscore 3.5\n'), read_output, share=30),
        Reader("training-csv", ",", _texts(TRAINING), read_training_csv, ".csv", 5),
        Reader("serving-csv", ",", _texts(SERVING), read_serving_csv, ".csv", 10),
        Reader("requests", ",:", _texts(*REQUESTS), read_requests, ".csv", 20),
        Reader("request-lines", "jsonl", _texts(REQUEST_LINES), read_requests, ".jsonl", 20),
        Reader("conversations", "json", _texts(TALKS), read_conversations, ".json", 20),
        Reader("serving-plan", "json", _texts(PLAN), read_plan, ".json", 20),
        Reader("client-results", "json", _texts(*CLIENTS.values()), read_client_result, ".json", 20),
        Reader("trial-results", "json", _texts(*RESULTS), read_trial_results, ".json", 20),
        Reader("engine-workload", "yaml", _texts(ENGINE), read_engine_workload, ".yaml", 20),
        *(Reader(*row) for row in CONTROL),
        Reader("cluster-text", "x:+@*", _texts("8xA100-80+4xA40", "50x8@V100+20x4@T4*0.4", "venus:50:2:1"), read_gpu_text, share=20),
    )
}
