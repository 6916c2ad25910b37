"""Each format from a few rows written by hand after its published description."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from autosched.sim.cluster import Cluster
from autosched.sim.describe import describe
from autosched.sim.export import trace_columns, write_table
from autosched.sim.session import refuse_impossible
from autosched.sim.trace import Trace
from autosched.traces.read import detect, read
from autoscout.core.errors import ConfigError
from autoscout.core.log import NOTICES


def test_plain_and_back(tmp_path: Path) -> None:
    trace = Trace.of([3, 1], [10, 20.5], [0.5, 4], user=["u", "v"], vc=["a", "b"], extra={"estimate_s": [11, 21]})
    for name in ("t.csv", "t.csv.gz"):
        write_table(trace_columns(trace), tmp_path / name)
        back = read(tmp_path / name)
        assert list(back.job_id) == list(trace.job_id)
        assert np.array_equal(back.duration_s, trace.duration_s)
        assert np.array_equal(back.gpus, trace.gpus)
        assert list(back.user.texts()) == list(trace.user.texts())
        assert np.array_equal(back.extra["estimate_s"], trace.extra["estimate_s"])


def test_bad_rows_are_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("job_id,submit_time,duration,gpus\na,0,5,1\nb,x,5,1\nc,1,-5,1\nd,2,5,0\ne,3,oops,1\n")
    with pytest.raises(ConfigError) as caught:
        read(path)
    text = str(caught.value)
    assert "arrival must be a number (line 3)" in text
    assert "duration must be a number (line 6)" in text
    assert "an end before its start (line 4)" in text
    assert "a job must want GPUs (line 5)" in text
    kept = read(path, drop_bad=True)
    assert list(kept.job_id) == ["a"]
    assert kept.filters == ("4 bad rows dropped (b, c, d, e)",)


def test_lines_of_another_length(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("job_id,submit_time,duration,gpus\na,0,5,1\nb,1,5\nc,1,5\n")
    with pytest.raises(ConfigError, match=r"4 columns expected \(lines 3-4\)"):
        read(path)


def test_unknown_files(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("what,ever\n1,2\n")
    with pytest.raises(ConfigError, match="none of the known formats"):
        read(path)
    with pytest.raises(ConfigError, match="no such file"):
        read(tmp_path / "absent.csv")
    with pytest.raises(ConfigError, match="must be one of acme"):
        read(path, form="nope")


def test_philly_flat_has_no_users(tmp_path: Path) -> None:
    path = tmp_path / "philly.csv"
    path.write_text("timestamp,duration,num_gpus,cluster\n2017-10-01 00:00:10,100,2,vc1\n2017-10-01 00:00:00,50,1,vc2\n")
    trace = read(path)
    assert list(trace.gpus) == [1, 2]
    assert trace.submit_s[0] == 1_506_816_000
    assert list(trace.vc.texts()) == ["vc2", "vc1"]
    assert trace.user.names == ("",)


def test_philly_log(tmp_path: Path) -> None:
    def attempt(start: str, end: str, gpus: int) -> dict[str, object]:
        return {"start_time": start, "end_time": end, "detail": [{"ip": "m1", "gpus": [f"gpu{number}" for number in range(gpus)]}]}

    jobs = [
        {
            "status": "Pass",
            "vc": "v",
            "jobid": "one",
            "submitted_time": "2017-10-07 01:00:00",
            "user": "u",
            "attempts": [
                attempt("2017-10-07 01:01:00", "2017-10-07 01:02:00", 4),
                attempt("2017-10-07 02:00:00", "2017-10-07 02:00:30", 8),
            ],
        },
        {"status": "Killed", "vc": "v", "jobid": "two", "submitted_time": "2017-10-07 01:00:00", "user": "u", "attempts": []},
    ]
    path = tmp_path / "cluster_job_log"
    path.write_text(json.dumps(jobs))
    trace = read(path)
    assert list(trace.job_id) == ["one"]
    assert trace.duration_s[0] == 90
    assert trace.gpus[0] == 8
    assert trace.filters == ("has at least one attempt: 1 of 2 jobs kept",)


def test_helios_in_local_time(tmp_path: Path) -> None:
    path = tmp_path / "cluster_log.csv.gz"
    text = (
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
        "7,uA,vcX,4,12,1,FAILED,2020-07-01 09:00:05,2020-07-01 09:00:06,2020-07-01 09:03:26,200,1\n"
        "8,uA,vcX,0,1,1,COMPLETED,2020-07-01 09:00:07,2020-07-01 09:00:07,2020-07-01 09:00:10,3,0\n"
    )
    path.write_bytes(gzip.compress(text.encode()))
    trace = read(path)
    assert detect(path) == "helios"
    assert trace.submit_s[0] == 1_593_565_205  # 01:00:05 UTC
    assert list(trace.status.texts()) == ["FAILED"]
    assert trace.filters == ("asks for GPUs: 1 of 2 jobs kept",)


def test_acme(tmp_path: Path) -> None:
    path = tmp_path / "trace_seren.csv"
    path.write_text(
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
        "1,u1,1,4,20,Other,FAILED,2023-05-02 10:00:10+08:00,2023-05-02 10:00:30+08:00,2023-05-02 10:02:10+08:00,100,20,400.0\n"
    )
    trace = read(path)
    assert detect(path) == "acme"
    assert trace.submit_s[0] == 1_682_992_810
    assert list(trace.name.texts()) == ["Other"]


def test_alibaba_shares(tmp_path: Path) -> None:
    path = tmp_path / "openb_pod_list_default.csv"
    path.write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "p0,3000,5000,1,370,,LS,Running,10,110,20\n"
        "p1,3000,5000,2,1000,,BE,Pending,30,50,\n"
        "p2,3000,5000,0,0,,BE,Running,30,50,30\n"
    )
    trace = read(path)
    assert list(trace.gpus) == [0.37, 2]
    assert list(trace.duration_s) == [90, 20]


def test_pai_joins_its_tables(tmp_path: Path) -> None:
    (tmp_path / "pai_job_table.csv").write_text("j1,i1,u1,Terminated,100.0,400.0\nj2,i2,u2,Failed,50.0,60.0\n")
    (tmp_path / "pai_task_table.csv").write_text(
        "j1,ps,1.0,Terminated,110.0,380.0,600.0,29.0,,\nj1,worker,3.0,Terminated,120.0,390.0,600.0,29.0,50.0,V100\n"
        "j2,worker,1.0,Failed,51.0,59.0,600.0,29.0,25.0,T4\n"
    )
    trace = read(tmp_path)
    assert list(trace.job_id) == ["j2", "j1"]
    assert list(trace.gpus) == [0.25, 2]
    assert list(trace.duration_s) == [8, 280]
    assert list(trace.kind.texts()) == ["T4", "V100"]
    with pytest.raises(ConfigError, match="job table and the task table"):
        read(tmp_path / "pai_job_table.csv", form="pai") if (tmp_path / "pai_task_table.csv").unlink() is None else None


def test_sacct(tmp_path: Path) -> None:
    path = tmp_path / "jobs.txt"
    path.write_text(
        "JobID|User|Partition|Submit|Start|End|State|JobName|ReqTRES|Timelimit\n"
        "10|ann|gpu|2024-01-01T00:00:00|2024-01-01T00:01:00|2024-01-01T01:01:00|COMPLETED|train|billing=8,cpu=8,gres/gpu=4,mem=1G|1-00:00:00\n"
        "10.batch|||2024-01-01T00:00:00|2024-01-01T00:01:00|2024-01-01T01:01:00|COMPLETED|batch|cpu=8,gres/gpu=4|\n"
        "11|bob|gpu|2024-01-01T00:00:05|2024-01-01T00:01:00|2024-01-01T00:02:00|CANCELLED by 5|x|cpu=1,gres/gpu:a100=1|02:00:00\n"
        "12|bob|cpu|2024-01-01T00:00:06|2024-01-01T00:01:00|2024-01-01T00:02:00|COMPLETED|x|cpu=1|02:00:00\n"
        "13|bob|gpu|2024-01-01T00:00:07|Unknown|Unknown|PENDING|x|cpu=1,gres/gpu=1|02:00:00\n"
    )
    trace = read(path)
    assert detect(path) == "sacct"
    assert list(trace.job_id) == ["10", "11"]
    assert list(trace.gpus) == [4, 1]
    assert list(trace.duration_s) == [3600, 60]
    assert list(trace.status.texts()) == ["COMPLETED", "CANCELLED"]
    assert list(trace.kind.texts()) == ["", "a100"]
    assert list(trace.extra["estimate_s"]) == [86_400, 7_200]
    assert len(trace.filters) == 3


def test_a_file_with_a_hundred_thousand_bad_rows_gives_a_short_message(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = (f"j{row},{row},{'x' if row % 2 else 5},1\n" for row in range(200_000))
    path.write_text("job_id,submit_time,duration,gpus\n" + "".join(rows))
    with pytest.raises(ConfigError) as caught:
        read(path)
    assert len(str(caught.value)) < 1000
    assert "and 99,980 more" in str(caught.value)
    assert len(read(path, drop_bad=True)) == 100_000


@pytest.mark.parametrize("jobs", ["[1]", '[{"attempts": 3}]', '[{"attempts": [{"detail": [3]}]}]', "[" * 5000])
def test_philly_logs_that_are_none(tmp_path: Path, jobs: str) -> None:
    (tmp_path / "log.json").write_text(jobs)
    with pytest.raises(ConfigError):
        read(tmp_path / "log.json")


def test_tables_that_break_off_or_stop_being_text(tmp_path: Path) -> None:
    head = b"job_id,submit_time,duration,gpus\n"
    (tmp_path / "t.csv").write_bytes(head + b"a" * 10_000 + b",0,5,1\n\xed\xa0,0,5,1\n")
    (tmp_path / "u.csv").write_bytes(head + b"a" * 200_000 + b",0,5,1\n")
    (tmp_path / "v.csv.gz").write_bytes(gzip.compress(head + b"a,0,5,1\n" * 100_000, mtime=0)[:300])
    for name in ("t.csv", "u.csv", "v.csv.gz"):
        with pytest.raises(ConfigError, match="cannot be read as a table"):
            read(tmp_path / name, form="plain")


def test_a_file_that_several_formats_match_is_read_by_the_one_that_takes_precedence(tmp_path: Path) -> None:
    path = tmp_path / "pai_jobs.csv"
    path.write_text("job_id,submit_time,duration,gpus,vc,gpu_num,state,user,node_num,type\na,0,5,1,v,1,ok,u,1,t\n")
    assert detect(path) == "plain"
    path.write_text(path.read_text().replace("gpus", "cores"))
    assert detect(path) == "helios"


HEAD = "job_id,submit_time,duration,gpus\n"
DATE_S = 1_714_500_000


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(100 + number, DATE_S + number, 1) for number in range(5)], "are submit_time and duration swapped?"),
        ([(DATE_S * 1_000 + number, 60, 1) for number in range(5)], "submit times look like milliseconds"),
        ([(number * 1e9, 60, 1) for number in range(5)], "jobs arrive over 127 years"),
        ([(0, 60, 1), (5, 1e15, 1)], "1 job (job-1) ran for more than a year"),
        ([(DATE_S, 86_400 * 364, 1), (DATE_S + 86_400 * 300, 1, 1)], ""),
    ],
)
def test_implausible_traces_are_questioned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, rows: list[tuple[float, float, int]], said: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(HEAD + "".join(f"job-{number},{row[0]},{row[1]},{row[2]}\n" for number, row in enumerate(rows)))
    with caplog.at_level("WARNING", logger=NOTICES):
        trace = read(path)
    assert len(trace) == len(rows), "questioned, not refused"
    doubts = [str(value) for name, value in describe(trace).items() if name.startswith("doubt_")]
    assert len(caplog.messages) == len(doubts) == bool(said)
    assert said in "".join(doubts)
    assert said in "".join(caplog.messages)


def test_description_shows_types_and_dates(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"job_id,submit_time,duration,gpus,kind\na,{DATE_S},60,1,a100\nb,{DATE_S + 60},60,1,a100\nc,{DATE_S + 90},60,1,\n")
    facts = describe(read(path))
    assert facts["first_arrival"] == "2024-04-30 18:00:00 UTC"
    assert facts["last_arrival"] == "2024-04-30 18:01:30 UTC"
    assert facts["jobs_on_a100"] == 2
    assert "first_arrival" not in describe(read(path).take(slice(0, 0)))


def test_typed_jobs_on_a_cluster_without_types_name_the_cure(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("job_id,submit_time,duration,gpus,kind\na,0,60,1,a100\n")
    with pytest.raises(ConfigError, match=r"--cluster 2x8@a100"):
        refuse_impossible(read(path), Cluster.parse("2x8"))
    refuse_impossible(read(path), Cluster.parse("2x8@a100"))
    with pytest.raises(ConfigError, match="larger cluster") as caught:
        refuse_impossible(read(path), Cluster.parse("2x8@v100"))
    assert "@a100" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "\n", " \n\n"])
def test_an_empty_file_is_called_empty(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match="is empty"):
        read(path)


@pytest.mark.parametrize("missing", ["submit_time", "duration", "gpus", "job_id"])
def test_a_missing_column_is_named(tmp_path: Path, missing: str) -> None:
    path = tmp_path / "t.csv"
    columns = [name for name in HEAD.strip().split(",") if name != missing]
    path.write_text(",".join(columns) + "\n1,2,3\n")
    with pytest.raises(ConfigError, match="columns are missing for a trace of the format plain") as caught:
        read(path)
    assert caught.value.faults[0].field == missing
