"""Hostfiles with sense and nonsense."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscout.common.files import parse_hostfile
from autoscout.core.errors import ConfigError


def test_comments_blank_lines_and_order() -> None:
    text = "# the cluster\n\nworker-1 slots=4\n  worker-0\tslots=2   # two cards are broken\n"
    assert parse_hostfile(text) == {"worker-1": (0, 1, 2, 3), "worker-0": (0, 1)}
    assert list(parse_hostfile(text)) == ["worker-1", "worker-0"]


def test_all_bad_lines_in_one_error_with_their_numbers() -> None:
    text = "worker-0 slots=4\nworker-1\nworker-2 slots=many\nworker-0 slots=2\nworker-3 slots=0\nworker-4 slots=4 extra\nslots=4\n"
    with pytest.raises(ConfigError) as caught:
        parse_hostfile(text, "hosts.txt")
    assert [fault.where for fault in caught.value.faults] == [f"hosts.txt:{line}" for line in (2, 3, 4, 5, 6, 7)]
    assert "on line 1 already" in caught.value.faults[2].rule
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n"])
def test_a_file_without_hosts_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="at least one host"):
        parse_hostfile(text)


@given(st.text(max_size=200))
def test_nonsense_never_raises_anything_else(text: str) -> None:
    try:
        hosts = parse_hostfile(text)
    except ConfigError as error:
        assert error.faults  # noqa: PT017
    else:
        assert all(slots for slots in hosts.values())


@pytest.mark.parametrize("slots", ["99999999999", "65537", "9" * 5000])
def test_more_slots_than_any_host_has(slots: str) -> None:
    with pytest.raises(ConfigError, match="at most 65,536 slots"):
        parse_hostfile(f"a slots={slots}\n")
