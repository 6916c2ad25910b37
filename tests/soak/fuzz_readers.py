"""Every reader of the project, with good inputs to begin from.

    python tests/soak/fuzz_readers.py READER FIRST COUNT

runs COUNT mutated inputs through a reader, beginning with number FIRST, and prints what it found as JSON. The same number is
always the same input, so that a run can be repeated from any point.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import signal
import sqlite3
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fuzz_mutate import mutate

from autoscout.core.errors import MOST_TEXT, RULE_SHOWN, AutoScoutError

MOST_S = 5.0  # processor seconds for one input
MOST_BYTES = 2 * 2**30  # memory for one input, on top of what the program takes by itself
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


SPACE = """
facts: {gpus: 8, layers: 32}
knobs:
  tp: {values: [1, 2, 4, 8], sparse: true}
  sp: {type: bool, when: tp > 1}
  x: {range: [1, 512], log: true, when: tp < gpus, default: 25, unit: MB}
  lr: {range: [0.1, 0.9], step: 0.1}
  p: {range: [1, 100], points: 5}
  kind: [a, b, c]
constraints:
  - layers % tp == 0
  - {rule: tp <= gpus and x < 500, why: no more ranks than devices, strict: true}
"""
AMONG = "knobs: {k: [1, 2], s: [a, b]}\namong: [{k: 1, s: a}, {k: 2, s: b}]\n"
CAMPAIGN = """
system: command
name: numbers
workload:
  command: 'echo {x} {y:flag} [--z {z|3}]'
  env: {OMP: '{x}'}
  files: {a.json: {n: $x}, b.txt: 'x={x}'}
  metrics: {score: {regex: 'score ([0-9.]+)'}, t: wall, n: 'json:a.b'}
  checks: [{expression: score >= 0}]
  resources: {cpus: 1, gpus: 'x - x', memory_gb: 1}
  limit_s: 5
goal: {metric: score, direction: minimize, slo: ['score<=500']}
budget: {trials: 6, wall: 10m}
space: {knobs: {x: {range: [0, 5], default: 0}, y: {range: [0, 3]}, z: {type: bool, when: x > 1}}, constraints: [x + y < 7]}
set: {y: 1}
first: [{x: 2}]
search: {searcher: random, seed: 1}
measure: {limit: 90s, repeats: 1}
hardware: {gpus: 8}
"""
CALIBRATION = "kind: {kind}\nname: mine\nspread: 0.3\nrows: 4\nmape: 0.1\nmade_from: table\nconstants: {{}}\nmodels: [a]\ngpus: [b]\n"
GPUS = "gpus:\n  MyGPU: {bf16_tflops: 100, memory_gb: 80, memory_gbps: 2000, node_gpus: 8, aliases: [mine], measured: once}\n"
MODEL = json.dumps(
    {"model_type": "x", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 100, "num_local_experts": 4}
    | {"num_experts_per_tok": 2, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 4, "text_config": {"x": 1}}
)
TUNING = json.dumps({"zero": {"stage": [0, 1, 2], "bucket": [1e6, 5e6], "on": [True, False]}, "batch": ["$N", 8], "fixed": 3})
SWEEPS = [
    json.dumps([{"max_num_seqs": 64, "eager": True}, {"max_num_seqs": 128, "eager": False}]),
    json.dumps({"a": {"n": 1}, "b": {"n": 2, "m": {"k": [1, 2]}}}),
]
T4 = json.dumps(
    {
        "schema_version": "1.0.0",
        "results": [
            {
                "configuration": {"x": x, "kind": kind},
                "objectives": ["time"],
                "invalidity": "correct",
                "correctness": 1,
                "times": {"runtimes": [1.0]},
                "measurements": [{"name": "time", "value": x * 1.5, "unit": "ms"}],
            }
            for x in (1, 2, 4)
            for kind in ("a", "b")
        ],
    }
)
TRACES = {
    "plain": "job_id,submit_time,duration,gpus,user\na,0,5,1,u\nb,2017-10-01 00:00:00,5,0.5,v\nc,3,1e2,8,u\n",
    "philly": "timestamp,duration,num_gpus,cluster\n2017-10-01 00:00:10,100,2,vc1\n2017-10-01 00:00:00,50,1,vc2\n",
    "helios": "job_id,user,vc,jobname,gpu_num,cpu_num,state,submit_time,duration\n1,u,v,n,2,4,COMPLETED,2020-04-01 00:00:00,10\n",
    "acme": "job_id,user,node_num,gpu_num,type,state,submit_time,duration\n1,u,1,8,t,COMPLETED,2023-01-01 00:00:00+08:00,10\n",
    "alibaba": "name,num_gpu,gpu_milli,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "a,1,500,LS,Running,0,10,1\nb,2,1000,BE,X,1,9,\n",
    "sacct": "JobID|User|Partition|Submit|Start|End|State|ReqTRES|Timelimit\n1|u|p|2024-01-01T00:00:00|2024-01-01T00:01:00|"
    "2024-01-01T01:00:00|COMPLETED|cpu=4,gres/gpu:a100=2|1-00:00:00\n",
}
LOG = json.dumps(
    [
        {
            "jobid": "a",
            "submitted_time": "2017-10-01 00:00:00",
            "user": "u",
            "vc": "v",
            "status": "Pass",
            "attempts": [{"start_time": "2017-10-01 00:00:00", "end_time": "2017-10-01 00:01:00", "detail": [{"ip": "m", "gpus": ["g0"]}]}],
        }
    ]
)
NODES = ["vc,nodes,gpus_per_node,kind,speed\na,3,8,V100,1.0\nb,1,4,,0.5\n", "sn,gpu,model\nn1,8,V100\nn2,4,T4\n"]
EXPRESSIONS = [
    "a + 2 * b <= 8 and not (c == 'x')",
    "a in (1, 2, 3) or `b` ** 2 % 3 == 1",
    "min(a, b) // 2 if a > 1 else max(b, 3)",
    "abs(a - b) < 1.5e3",
]
TEMPLATES = [
    "run --x {x} {y:flag} [--z {z}] '{s}' \"{s|none}\" {x:04d} {f:.2f} {flags} > {folder}/out",
    "a {y:switch=--fast} {{x}} ${HOME} {port}",
]
FLAGS = ["threads=2", "a.b.c=[1, 2]", "gpus=8xA100-80", "x=.5", "limit=p95_ttft_ms<=500", "on=true", "m={a: 1}"]
TRAINING = "model,gpu,n_gpus,seq,gbs,tp,pp,iter_ms,peak_mem_gib\nllama-3.1-8b,A100-80,8,4096,64,2,1,1200,40\n"
TRAINING += "llama-3.1-8b,A100-80,8,4096,64,4,1,1500,\n"
FIELDS = "model: {layers: 2, hidden: 64, heads: 4, experts: 2, active_experts: 1, vocab: 9}\n"
FIELDS += "hardware: {gpus: 8, gpu: A100-80, nic_gbps: 2}\n"
SERVING = (
    "model_path,system,backend,isl,osl,batch_size,concurrency,tp_size,silicon_tpot_ms,silicon_ttft_ms\n"
    "Qwen/Qwen3-8B,h100_sxm,vllm,1024,128,8,8,1,9.5,120\n"
)


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
    from autoscout.common.hosts import parse_hostfile

    parse_hostfile(_text(path))


def read_t4(path: Path) -> None:
    from autoscout.bench.tables import find_tables, load_table

    for source in find_tables(str(path)):
        load_table.__wrapped__(source)


def read_manifest(path: Path) -> None:
    from autoscout.bench.tables import find_tables, load_table

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
    from autoscout.sched.source import load_trace

    for drop_bad in (False, True):
        try:
            load_trace(str(path), drop_bad=drop_bad)
        except AutoScoutError:
            if drop_bad:
                raise


def read_pai(path: Path) -> None:
    from autoscout.sched.source import load_trace

    folder = path.parent / "pai"
    folder.mkdir(exist_ok=True)
    jobs, _, tasks = _text(path).partition("\n\n")
    (folder / "pai_job_table.csv").write_text(jobs, encoding="utf-8", errors="replace")
    (folder / "pai_task_table.csv").write_text(tasks, encoding="utf-8", errors="replace")
    load_trace(str(folder), drop_bad=True)


def read_nodes(path: Path) -> None:
    from autoscout.sched.cluster import Cluster

    Cluster.read(path).table()


def read_gguf(path: Path) -> None:
    from autoscout.backends.llamacpp.gguf_file import GgufError, GgufFile

    try:
        file = GgufFile(path)
        _ = file.facts
        file.prompt_tokens()
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
    import yaml

    from autoscout.simulators._shared.task import read_cluster
    from autoscout.simulators._shared.task import read_model as model_of

    try:
        given = yaml.safe_load(_text(path))
    except Exception:
        return
    if not isinstance(given, dict):
        return
    machine = given.get("hardware")
    with suppress(AutoScoutError):
        model_of(given.get("model"))
    read_cluster(machine if isinstance(machine, dict) else {})


def read_flags(path: Path) -> None:
    from autoscout.cli._options import settings

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
    from autoscout.backends.command.template import Scope, parse
    from autoscout.core.errors import ConfigError, Fault

    template = parse(_text(path), shell=True)
    if template.faults:
        raise ConfigError([Fault(rule=rule) for rule in template.faults])
    scope = Scope(values={"x": 3, "y": True, "s": "it's", "f": 0.5, "seed": 1}, flags=("x", "y"))
    template.shell(scope)
    template.words(scope)


def read_output(path: Path) -> None:
    from autoscout.backends.command.sources import Run, Source, UnreadableError

    run = Run(stdout=_text(path), wall_s=1.0)
    for source in ({"json": "a.b"}, {"json": "*"}, {"regex": "score ([0-9.]+)"}):
        try:
            if source.get("json") == "*":
                Source.model_validate(source).read_all(run)
            else:
                Source.model_validate(source).read("score", run)
        except UnreadableError as error:  # becomes the reason of a failed trial
            _short(error)


def read_training_csv(path: Path) -> None:
    from autoscout.simulators.training.tables import read_training_table

    read_training_table(path)


def read_serving_csv(path: Path) -> None:
    from autoscout.simulators.serving.tables import read_serving_table

    read_serving_table(path)


def read_gpu_text(path: Path) -> None:
    from autoscout.catalog.gpus import cluster
    from autoscout.sched.cluster import Cluster
    from autoscout.sched.source import load_trace

    text = _text(path)
    for read in (cluster, lambda given: Cluster.parse(given).table(), lambda given: load_trace(f"synthetic:{given}")):
        try:
            read(text)  # type: ignore[operator]
        except AutoScoutError as error:
            _short(error)


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
    from autoscout.space.interchange import write_configspace

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
        Reader("campaign", "yaml", _texts(CAMPAIGN), read_campaign_file, ".yaml", 20),
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
        Reader("output", "\n:", _texts('noise\n{"a": {"b": 3}, "c": 1e5}\nscore 3.5\n'), read_output, share=30),
        Reader("training-csv", ",", _texts(TRAINING), read_training_csv, ".csv", 5),
        Reader("serving-csv", ",", _texts(SERVING), read_serving_csv, ".csv", 10),
        Reader("cluster-text", "x:+@*", _texts("8xA100-80+4xA40", "50x8@V100+20x4@T4*0.4", "venus:50:2:1"), read_gpu_text, share=20),
    )
}


class TooSlow(BaseException):
    """Not an Exception: nobody may catch it on the way."""


def input_of(reader: Reader, number: int) -> bytes:
    """The mutated input of that number, the same everywhere."""
    rng = random.Random(f"{reader.name} {number}")
    return mutate(rng, rng.choice(reader.seeds()), reader.form)


def try_one(reader: Reader, data: bytes, folder: Path) -> str:
    """What is wrong with how the reader takes this input; empty when nothing is."""
    path = folder / f"input{reader.suffix}"
    path.write_bytes(data)
    signal.setitimer(signal.ITIMER_PROF, MOST_S)
    try:
        reader.read(path)
    except AutoScoutError as error:
        signal.setitimer(signal.ITIMER_PROF, 0)
        if len(str(error)) > MOST_MESSAGE:
            return f"a message of {len(str(error))} characters"
        if not error.faults or not error.faults[0].rule:
            return "an error without a rule"
    except TooSlow as error:
        return f"slow: {_place(error)}"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:100]!r} {_place(error)}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return ""


def _place(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "autoscout" in frame.filename]
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames[-3:]))


@contextmanager
def bounded_memory(limit: int) -> Iterator[None]:
    """At most `limit` bytes of addresses more than now."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _too_slow(_signal: int, _frame: Any) -> None:
    raise TooSlow


def fuzz(name: str, first: int, count: int, most: int = 20) -> dict[str, Any]:
    """Run inputs `first` to `first + count` through a reader; findings of one kind are kept once."""
    reader = READERS[name]
    findings: dict[str, dict[str, Any]] = {}
    signal.signal(signal.SIGPROF, _too_slow)
    with tempfile.TemporaryDirectory() as folder:
        for seed in reader.seeds():
            wrong = try_one(reader, seed, Path(folder))
            if wrong:
                findings.setdefault(f"seed: {wrong}", {"number": -1, "kind": wrong, "input": repr(seed[:300])})
        with bounded_memory(MOST_BYTES):
            for number in range(first, first + count):
                data = input_of(reader, number)
                wrong = try_one(reader, data, Path(folder))
                key = wrong.rpartition(" ")[2] if wrong and "<" in wrong else wrong[:60]
                if wrong and key not in findings:
                    findings[key] = {"number": number, "kind": wrong, "input": repr(data[:400])}
                    if len(findings) >= most:
                        break
    return {"reader": name, "ran": count, "findings": list(findings.values())}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("reader", choices=list(READERS))
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    given = parser.parse_args()
    print(json.dumps(fuzz(given.reader, given.first, given.count)))
