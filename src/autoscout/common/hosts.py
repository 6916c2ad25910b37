"""Hostfiles: the list of hosts that MPI and DeepSpeed launchers read.

One host a line:

    # comment
    worker-1 slots=4
    worker-2 slots=4
"""

from __future__ import annotations

import re

from autoscout.core.errors import ConfigError, Fault

MOST_SLOTS = 65_536  # of one host: more than any machine has GPUs or cores

_LINE = re.compile(r"(?P<host>\S+)\s+slots=(?P<slots>\d+)")


def parse_hostfile(text: str, where: str = "hostfile") -> dict[str, tuple[int, ...]]:
    """Read a hostfile: each host with its slots (GPU numbers), in the order of the file.

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
        elif len(match["slots"]) > len(str(MOST_SLOTS)) or int(match["slots"]) > MOST_SLOTS:
            rule, fix = f"a host has at most {MOST_SLOTS:,} slots", "Count its GPUs"
        elif int(match["slots"]) == 0:
            rule, fix = "a host needs at least one slot", "Remove the line or count its GPUs"
        elif match["host"] in first_seen:
            rule = f"a host may be listed once; {match['host']} is on line {first_seen[match['host']]} already"
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


__all__ = ["parse_hostfile"]
