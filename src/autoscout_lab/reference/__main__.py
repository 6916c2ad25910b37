"""Run a trace as another simulator would, and compare job by job with what it said.

python -m autoscout_lab.reference lucid-fifo --trace venus.csv.gz --cluster nodes.csv --ties order.csv --compare golden.csv.gz
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from autosched.sim.cluster import Cluster
from autosched.sim.engine import simulate
from autosched.sim.metrics import summary
from autosched.traces.read import read
from autoscout.core.errors import AutoScoutError
from autoscout_lab.reference.lucid import LucidFIFO, LucidLucid, LucidQSSF, LucidSJF, LucidSRTF, LucidTiresias
from autoscout_lab.reference.symbiotic import SymbioticFIFO, SymbioticSRTF, SymbioticTiresias
from autoscout_lab.reference.tables import agreement, in_order, with_columns
from autoscout_lab.reference.titan import TitanThemis

VARIANTS: dict[str, Any] = {
    "lucid-fifo": LucidFIFO,
    "lucid-lucid": LucidLucid,
    "lucid-qssf": LucidQSSF,
    "lucid-sjf": LucidSJF,
    "lucid-srtf": LucidSRTF,
    "lucid-tiresias": LucidTiresias,
    "symbiotic-fifo": SymbioticFIFO,
    "symbiotic-srtf": SymbioticSRTF,
    "symbiotic-tiresias": SymbioticTiresias,
    "titan-themis": TitanThemis,
}


def main(words: Sequence[str] | None = None) -> None:
    """The program."""
    parser = argparse.ArgumentParser(prog="python -m autoscout_lab.reference", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("variant", choices=sorted(VARIANTS))
    parser.add_argument("--trace", type=Path, required=True, help="a trace file")
    parser.add_argument("--cluster", required=True, help="NODESxGPUS such as 70x8, parts joined by +, or a node file")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="a field of the variant; the value as in YAML")
    parser.add_argument("--ties", type=Path, help="a table of job_id: jobs that arrive together go in its order")
    parser.add_argument("--column", action="append", default=[], metavar="NAME=FILE:COLUMN", help="add a column of a table with job_id")
    parser.add_argument("--compare", type=Path, help="a table of job_id and start_time, end_time or preemptions")
    arguments = parser.parse_args(words)
    kind = VARIANTS[arguments.variant]
    fields = dict(text.split("=", 1) for text in arguments.set if "=" in text)
    unknown = [
        text for text in arguments.set if text.split("=")[0] not in {field.name for field in dataclasses.fields(kind)} or "=" not in text
    ]
    if unknown:
        parser.error(f"{kind.__name__} has no such fields: {', '.join(unknown)}")
    try:
        trace = read(arguments.trace)
        trace = with_columns(in_order(trace, arguments.ties) if arguments.ties else trace, arguments.column)
        result = simulate(trace, Cluster.parse(arguments.cluster), kind(**{name: yaml.safe_load(value) for name, value in fields.items()}))
        equal = agreement(result, arguments.compare) if arguments.compare else {}
    except AutoScoutError as error:
        parser.exit(2, f"{error}\n")
    print(f"mean_jct_s: {summary(result)['mean_jct_s']:,.1f}")
    for name, count in equal.items():
        print(f"equal {name}: {count:,} of {len(trace):,} jobs")


if __name__ == "__main__":
    main()
