"""What every trace format must do. Subclass `TraceFormatSuite` in a test module and give it the fixture `kind`, the class:

    class TestMyFormat(TraceFormatSuite):
        @pytest.fixture
        def kind(self):
            return MyFormat

Needs no pytest itself; the methods are plain functions of the class and of an empty folder `tmp_path`. They read the class's `example`,
and what is left of it after damage that is drawn at random but always the same.
"""

from __future__ import annotations

import contextlib
import gzip
from pathlib import Path

import numpy as np

from autosched.sim.export import trace_columns, write_table
from autosched.sim.trace import Trace
from autosched.traces.columns import first_line
from autosched.traces.read import detect, read
from autosched.traces.trace_format import TraceFormat
from autoscout.core import plugins
from autoscout.core.errors import ConfigError
from autoscout.core.seeds import stream

DAMAGES = 40
_BYTES = b"\x00\xff,|\"'\n[]{}-0x9 "


def write_example(kind: type[TraceFormat], folder: Path, *, packed: bool = False) -> Path:
    """The example of a format in a folder: the file, or the folder where there are several.

    Args:
        kind: The format.
        folder: Where to write; is made.
        packed: Whether files are gzipped.
    """
    folder.mkdir()
    for name, text in kind.example.items():
        (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    return next(folder.iterdir()) if len(kind.example) == 1 else folder


def is_same(one: Trace, other: Trace) -> bool:
    """Whether two traces have the same jobs."""
    columns = ("job_id", "submit_s", "duration_s", "gpus")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in columns)


class TraceFormatSuite:
    """The contract, as tests."""

    def test_the_class(self, kind: type[TraceFormat]) -> None:
        assert issubclass(kind, TraceFormat)
        assert kind.__doc__
        assert kind.example

    def test_its_files_are_recognised(self, kind: type[TraceFormat], tmp_path: Path) -> None:
        path = write_example(kind, tmp_path / "example")
        assert kind().matches(first_line(path), path)
        assert plugins.get("trace-format", detect(path)) is kind

    def test_other_files_are_left_to_others(self, kind: type[TraceFormat], tmp_path: Path) -> None:
        for number, text in enumerate(("", "what,ever\n1,2\n", "\n\n\n", "{}")):
            path = tmp_path / f"{number}.txt"
            path.write_text(text)
            assert not kind().matches(first_line(path), path), f"{text!r} is no trace of this format"

    def test_jobs_are_whole(self, kind: type[TraceFormat], tmp_path: Path) -> None:
        raw = kind().read(write_example(kind, tmp_path / "example"))
        trace = raw.finish(drop_bad=False)
        assert len(trace) >= 2, "an example has at least two jobs on GPUs"
        assert (np.diff(trace.submit_s) >= 0).all()
        assert (trace.gpus > 0).all()
        assert (trace.duration_s >= 0).all()
        assert len(raw.lines) == len(trace), "one line per job"
        assert len(set(raw.lines.tolist())) == len(raw.lines), "and to each its own"

    def test_a_gzipped_file_is_the_same_trace(self, kind: type[TraceFormat], tmp_path: Path) -> None:
        plain, packed = write_example(kind, tmp_path / "plain"), write_example(kind, tmp_path / "packed", packed=True)
        assert is_same(read(plain), read(packed))

    def test_reading_changes_nothing(self, kind: type[TraceFormat], tmp_path: Path) -> None:
        path = write_example(kind, tmp_path / "example")
        assert is_same(read(path), read(path))
        assert {file.name: file.read_text() for file in (tmp_path / "example").iterdir()} == dict(kind.example)

    def test_it_can_be_converted(self, kind: type[TraceFormat], tmp_path: Path) -> None:
        trace = read(write_example(kind, tmp_path / "example"))
        write_table(trace_columns(trace), tmp_path / "plain.csv")
        assert is_same(read(tmp_path / "plain.csv", form="plain"), trace)

    def test_a_damaged_file_is_refused_or_read(self, kind: type[TraceFormat], tmp_path: Path) -> None:
        """Cut off, or with other bytes in it: a `ConfigError` or a trace, and no other exception."""
        draw = stream(1, "damage", kind.__name__)
        path = write_example(kind, tmp_path / "example")
        for name, text in kind.example.items():
            for _ in range(DAMAGES):
                content = bytearray(text.encode())
                for index in draw.integers(0, len(content), 4).tolist():
                    content[index] = _BYTES[int(draw.integers(len(_BYTES)))]
                (tmp_path / "example" / name).write_bytes(content[: int(draw.integers(1, len(content) + 1))])
                with contextlib.suppress(ConfigError):
                    assert (kind().read(path).finish(drop_bad=bool(draw.integers(2))).gpus > 0).all()
            (tmp_path / "example" / name).write_text(text)
