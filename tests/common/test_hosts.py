"""Hostfiles with sense and nonsense, DeepSpeed's filters, and the pool of slots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscout.common.hosts import Pool, Reservation, filter_hosts, parse_hostfile, world
from autoscout.core.errors import ConfigError

HOSTS = {"worker-0": (0, 1, 2, 3), "worker-1": (0, 1, 2, 3)}


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


def test_include_as_deepspeed_documents_it() -> None:
    assert filter_hosts(HOSTS, include="worker-0@worker-1:0,2") == {"worker-0": (0, 1, 2, 3), "worker-1": (0, 2)}
    assert filter_hosts(HOSTS, include="worker-1:2,0,2") == {"worker-1": (0, 2)}
    assert filter_hosts(HOSTS, include="worker-1:0@worker-1:3") == {"worker-1": (0, 3)}


def test_exclude_as_deepspeed_documents_it() -> None:
    assert filter_hosts(HOSTS, exclude="worker-1:0") == {"worker-0": (0, 1, 2, 3), "worker-1": (1, 2, 3)}
    assert filter_hosts(HOSTS, exclude="worker-0") == {"worker-1": (0, 1, 2, 3)}
    assert filter_hosts(HOSTS) == HOSTS


def test_filters_are_refused_with_all_faults() -> None:
    with pytest.raises(ConfigError, match="only one of the two"):
        filter_hosts(HOSTS, include="worker-0", exclude="worker-1")
    with pytest.raises(ConfigError) as caught:
        filter_hosts(HOSTS, include="worker-9@worker-0:7@worker-1:x@")
    assert len(caught.value.faults) == 4
    with pytest.raises(ConfigError, match="leaves no slot"):
        filter_hosts(HOSTS, exclude="worker-0@worker-1")


def test_pool_counts_reserves_and_releases() -> None:
    pool = Pool(HOSTS)
    assert [pool.fits(gpus) for gpus in (1, 2, 3, 4, 5)] == [8, 4, 2, 2, 0]
    assert [pool.fits(gpus, nodes=2) for gpus in (1, 2, 4, 5)] == [4, 2, 1, 0]
    first = pool.reserve(2)
    assert first == Reservation((("worker-0", (0, 1)),))
    assert first.include == "worker-0:0,1"
    assert pool.reserve(2) == Reservation((("worker-0", (2, 3)),)), "the fuller host is used up first"
    assert pool.reserve(4) == Reservation((("worker-1", (0, 1, 2, 3)),))
    assert pool.reserve(1) is None
    pool.release(first)
    assert pool.free == {"worker-0": (0, 1), "worker-1": ()}
    with pytest.raises(ValueError, match="not taken"):
        pool.release(first)


def test_pool_over_several_nodes() -> None:
    pool = Pool(HOSTS)
    taken = pool.reserve(3, nodes=2)
    assert taken is not None
    assert taken.include == "worker-0:0,1,2@worker-1:0,1,2"
    assert pool.reserve(2, nodes=2) is None
    assert pool.reserve(1, nodes=2) is not None


def test_a_request_that_can_never_fit_is_an_error_not_a_wait() -> None:
    with pytest.raises(ConfigError, match="larger than the pool"):
        Pool(HOSTS).reserve(5)
    with pytest.raises(ConfigError, match="larger than the pool"):
        Pool(HOSTS).reserve(1, nodes=3)
    with pytest.raises(ValueError, match="at least one slot"):
        Pool(HOSTS).fits(0)


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    gpus=st.integers(1, 5),
    nodes=st.integers(1, 3),
)
def test_what_fits_can_be_reserved_for_one_host_and_never_more(sizes: list[int], gpus: int, nodes: int) -> None:
    pool = Pool({f"h{index}": tuple(range(size)) for index, size in enumerate(sizes)})
    fits = pool.fits(gpus, nodes)
    held = []
    while fits and (reservation := pool.reserve(gpus, nodes)) is not None:
        held.append(reservation)
    assert len(held) <= fits
    assert nodes > 1 or len(held) == fits
    for reservation in held:
        pool.release(reservation)
    assert all(len(slots) == size for slots, size in zip(pool.free.values(), sizes, strict=True))


def test_world_is_in_rank_order() -> None:
    assert list(world({"b": (0, 2), "a": (1,)})) == [("b", 0), ("b", 2), ("a", 1)]
