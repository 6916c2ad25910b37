from __future__ import annotations

from pathlib import Path

from autoscout.common.machine import describe_machine, processor


def test_what_a_processor_is_called(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: AMD EPYC 7B13\n\nprocessor\t: 1\nmodel name\t: AMD EPYC 7B13\n")
    assert processor(info) == "AMD EPYC 7B13"
    assert processor(tmp_path / "absent"), "its architecture at least"


def test_a_machine_in_words() -> None:
    facts = describe_machine()
    assert {"processor", "cores", "memory", "kernel", "python", "autoscout", "load average"} == set(facts)
    assert all(facts.values())
