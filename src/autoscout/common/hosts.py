"""Hostfiles and the pool of slots they describe.

A hostfile is the list that MPI and DeepSpeed launchers read, one host a line:

    # comment
    worker-1 slots=4
    worker-2 slots=4

Filters are DeepSpeed's: `worker-0@worker-1:0,2` names all slots of worker-0 and two of worker-1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoscout.core.errors import ConfigError, Fault

Hosts = Mapping[str, tuple[int, ...]]
"""Host -> its slots (GPU numbers), in the order of the file."""

_LINE = re.compile(r"(?P<host>\S+)\s+slots=(?P<slots>\d+)")


def parse_hostfile(text: str, where: str = "hostfile") -> dict[str, tuple[int, ...]]:
    """Read a hostfile.

    Raises:
        ConfigError: one fault per bad line (nonsense, no slots, host twice), or one for a file without hosts.
    """
    hosts: dict[str, tuple[int, ...]] = {}
    first_seen: dict[str, int] = {}
    faults: list[Fault] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.split("#", 1)[0].strip()
        if not line:
            continue
        match = _LINE.fullmatch(line)
        rule = fix = ""
        if not match:
            rule, fix = "a line reads `HOST slots=NUMBER`", "Example: worker-1 slots=4"
        elif int(match["slots"]) == 0:
            rule, fix = "a host needs at least one slot", "Remove the line or count its GPUs"
        elif match["host"] in first_seen:
            rule = f"a host may stand once; {match['host']} is on line {first_seen[match['host']]} already"
            fix = "Join the two lines"
        if not match or rule:
            faults.append(Fault(where=f"{where}:{number}", value=repr(raw.strip()), rule=rule, fix=fix))
            continue
        first_seen[match["host"]] = number
        hosts[match["host"]] = tuple(range(int(match["slots"])))
    if not hosts and not faults:
        faults.append(Fault(where=where, rule="a hostfile names at least one host", fix="Example: worker-1 slots=4"))
    if faults:
        raise ConfigError(faults)
    return hosts


def filter_hosts(hosts: Hosts, include: str = "", exclude: str = "") -> dict[str, tuple[int, ...]]:
    """The hosts and slots that stay when `include` or `exclude` (one of them) is applied; the order of the file is kept.

    Raises:
        ConfigError: both filters, a filter that cannot be read, unknown hosts or slots (all at once), or nothing left.
    """
    if include and exclude:
        raise ConfigError(Fault(where="include, exclude", rule="only one of the two filters may be given", fix="Leave one out"))
    if not include and not exclude:
        return dict(hosts)
    where = "include" if include else "exclude"
    wanted = _parse_filter(include or exclude, hosts, where)
    if include:
        kept = {host: tuple(slot for slot in slots if slot in wanted[host]) for host, slots in hosts.items() if host in wanted}
    else:
        kept = {host: tuple(slot for slot in slots if slot not in wanted.get(host, ())) for host, slots in hosts.items()}
    kept = {host: slots for host, slots in kept.items() if slots}
    if not kept:
        raise ConfigError(Fault(where=where, value=repr(include or exclude), rule="the filter leaves no slot at all"))
    return kept


def _parse_filter(text: str, hosts: Hosts, where: str) -> dict[str, set[int]]:
    wanted: dict[str, set[int]] = {}
    faults: list[Fault] = []
    for part in text.split("@"):
        host, colon, listed = part.strip().partition(":")
        slots = [slot.strip() for slot in listed.split(",")] if colon else []
        if not host or any(not slot.isdigit() for slot in slots):
            rule, fix = "a filter reads HOST[:SLOT,SLOT...] with @ between hosts", "Example: worker-0@worker-1:0,2"
            faults.append(Fault(where=where, value=repr(part), rule=rule, fix=fix))
        elif host not in hosts:
            faults.append(Fault(where=where, value=repr(host), rule=f"unknown host; the hostfile has: {', '.join(hosts)}"))
        else:
            strange = [slot for slot in slots if int(slot) not in hosts[host]]
            for slot in strange:
                has = ", ".join(map(str, hosts[host]))
                faults.append(Fault(where=where, value=f"{host}:{slot}", rule=f"unknown slot; {host} has: {has}"))
            chosen = {int(slot) for slot in slots if slot not in strange} if colon else set(hosts[host])
            wanted.setdefault(host, set()).update(chosen)
    if faults:
        raise ConfigError(faults)
    return wanted


@dataclass(frozen=True)
class Reservation:
    """Slots that one experiment holds."""

    slots: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def include(self) -> str:
        """As a DeepSpeed `--include` filter: `worker-1:0,1@worker-2:0,1`."""
        return "@".join(f"{host}:{','.join(map(str, slots))}" for host, slots in self.slots)


class Pool:
    """The free slots of some hosts; experiments take and give back whole sets of them.

    An experiment asks for `gpus` slots on each of `nodes` hosts, as DeepSpeed counts. The host with the fewest free slots that
    still fit is used first, so that small experiments do not break up the room of large ones.
    """

    def __init__(self, hosts: Hosts) -> None:
        self._all = {host: tuple(slots) for host, slots in hosts.items()}
        self._free: dict[str, list[int]] = {host: sorted(slots) for host, slots in self._all.items()}

    @property
    def free(self) -> dict[str, tuple[int, ...]]:
        """Free slots by host."""
        return {host: tuple(slots) for host, slots in self._free.items()}

    def fits(self, gpus: int, nodes: int = 1) -> int:
        """How many experiments of this size the empty pool holds at once."""
        _check_request(gpus, nodes)
        per_host = sorted((len(slots) // gpus for slots in self._all.values()), reverse=True)
        if nodes == 1:
            return sum(per_host)
        # n experiments fit when hosts, each serving an experiment at most once, offer n * nodes places.
        return max(count for count in range(sum(per_host) // nodes + 1) if sum(min(places, count) for places in per_host) >= count * nodes)

    def reserve(self, gpus: int, nodes: int = 1) -> Reservation | None:
        """Take the slots, or None when they are not free now.

        Raises:
            ConfigError: the request would not fit the empty pool either, so that waiting cannot help.
        """
        if self.fits(gpus, nodes) == 0:
            has = ", ".join(f"{host} slots={len(slots)}" for host, slots in self._all.items())
            found = f"{nodes} host(s) with {gpus} slot(s) each"
            raise ConfigError(Fault(where="hosts", value=found, rule=f"the request is larger than the pool: {has}"))
        order = {host: position for position, host in enumerate(self._free)}
        fitting = sorted(
            (host for host, slots in self._free.items() if len(slots) >= gpus), key=lambda host: (len(self._free[host]), order[host])
        )
        if len(fitting) < nodes:
            return None
        chosen = sorted(fitting[:nodes], key=order.__getitem__)
        return Reservation(tuple((host, tuple(self._take(host, gpus))) for host in chosen))

    def release(self, reservation: Reservation) -> None:
        """Give slots back; giving the same ones back twice is a mistake of the caller and raises ValueError."""
        for host, slots in reservation.slots:
            if any(slot in self._free[host] or slot not in self._all[host] for slot in slots):
                raise ValueError(f"slots {slots} of {host} are not taken")
        for host, slots in reservation.slots:
            self._free[host] = sorted((*self._free[host], *slots))

    def _take(self, host: str, gpus: int) -> list[int]:
        taken, self._free[host] = self._free[host][:gpus], self._free[host][gpus:]
        return taken


def _check_request(gpus: int, nodes: int) -> None:
    if gpus < 1 or nodes < 1:
        raise ValueError(f"an experiment needs at least one slot on one host, not {gpus=} {nodes=}")


def world(hosts: Hosts) -> Sequence[tuple[str, int]]:
    """All (host, slot) pairs in rank order."""
    return [(host, slot) for host, slots in hosts.items() for slot in slots]


__all__ = ["Hosts", "Pool", "Reservation", "filter_hosts", "parse_hostfile", "world"]
