"""Compares two searchers, or two states of one, family by family: `python -m benchmarks.search_compare OLD NEW [--seeds 20]`.

    python -m benchmarks.search_compare hybrid@main hybrid            # main and the working tree
    python -m benchmarks.search_compare hybrid hybrid:cautious=true   # two options
    python -m benchmarks.search_compare cherrypick hybrid+auto        # told what a simulator predicts, where one understands the table

Both run on the same tables with the same seeds, and the difference is taken run by run. The last line says whether NEW may be merged:
not if it loses two standard errors of the area under regret in any family; the exit status is 1 then. Choose on `--part choosing` (the
default, with seeds from 1000); the other families are for the results page. Runs are kept in `--runs`, so a comparison can be resumed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from autoscout.core.errors import ConfigError
from benchmarks._search_families import CHOOSING, FAMILIES, FINAL, chosen
from benchmarks._search_figures import Difference, by_family, difference, figures
from benchmarks._search_race import Contestant, Run, race


def main() -> int:
    """Run what is missing, print the table and the verdict; 1 where NEW loses in a family, 2 for bad input."""
    asked = _arguments()
    try:
        old, new = Contestant.parse(asked.old), Contestant.parse(asked.new)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    families = chosen(asked.part, asked.families)
    if not families or old.label == new.label:
        names = ", ".join(family.name for family in FAMILIES)
        print(f"Give two different searchers, and families of these: {names}.", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(asked.runs) if asked.runs else Path(temporary)
        seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
        runs = race([old, new], families, seeds, folder, asked.jobs)
    lots = by_family(runs)
    pairs = {name: difference(lot[new.label], lot[old.label]) for name, lot in lots.items() if {old.label, new.label} <= lot.keys()}
    print(as_table(lots, pairs, old.label, new.label))
    print(verdict(pairs, new.label))
    return int(any(pair.verdict == "worse" for pair in pairs.values()))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="SEARCHER[:OPTION=VALUE...][+SIMULATOR[~ERROR]][@COMMIT or FOLDER]")
    parser.add_argument("new", help="the same, compared with it")
    parser.add_argument("--part", choices=(CHOOSING, FINAL, "all"), default=CHOOSING)
    parser.add_argument("--families", default="", help="comma-separated names, instead of --part")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=1, help="processes, one thread each")
    parser.add_argument("--runs", default="", help="folder that keeps tables and runs")
    return parser.parse_args()


def as_table(lots: Mapping[str, Mapping[str, Sequence[Run]]], pairs: Mapping[str, Difference], old: str, new: str) -> str:
    """One row per family, in Markdown."""
    lines = [f"| family | area: {old} | {new} | difference | to 5 %: {old} | {new} | log difference | failures: {old} | {new} | {new} is |"]
    lines.append("|---|---|---|---|---|---|---|---|---|---|")
    for name, pair in pairs.items():
        one, two = figures(lots[name][old]), figures(lots[name][new])
        cells = [f"{one.area:.4f}", f"{two.area:.4f}", f"{pair.area:+.4f} ± {pair.area_error:.4f}"]
        cells += [f"{one.evaluations:.1f}", f"{two.evaluations:.1f}", f"{pair.evaluations:+.3f} ± {pair.evaluations_error:.3f}"]
        cells += [f"{one.failures:.1f}", f"{two.failures:.1f}", pair.verdict]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def verdict(pairs: Mapping[str, Difference], new: str) -> str:
    """What follows for a merge."""
    lost, won = ([name for name, pair in pairs.items() if pair.verdict == how] for how in ("worse", "better"))
    if lost:
        return f"{new} loses two standard errors in {', '.join(lost)}: do not merge."
    return f"{new} loses two standard errors nowhere" + (f", and wins them in {', '.join(won)}." if won else ".")


if __name__ == "__main__":
    sys.exit(main())
