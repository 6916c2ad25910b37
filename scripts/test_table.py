"""Prints what a whole run of the tests took: minutes by part, the slowest tests, and skips by reason.

`scripts/test_table.py FOLDER`: reads `parts.tsv`, which `timed` (scripts/timed) writes, and one `*.json` for each run of pytest, which
tests/conftest.py writes.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

SLOWEST = 25


def main(folder: Path) -> None:
    """Print the table."""
    runs = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    parts = [row.split("\t") for row in (folder / "parts.tsv").read_text().splitlines()]
    print("\nminutes  part")
    for name, seconds in parts:
        print(f"{int(seconds) / 60:7.1f}  {name}")
    print(f"{sum(int(seconds) for _, seconds in parts) / 60:7.1f}  in all")
    print("\nseconds  slowest tests")
    tests = sorted((tuple(row) for run in runs for row in run["seconds"]), reverse=True)
    for seconds, name in tests[:SLOWEST]:
        print(f"{seconds:7.1f}  {name}")
    skips: Counter[str] = sum((Counter(run["skips"]) for run in runs), Counter())
    print(f"\nskipped  reason ({skips.total()} in all)")
    for reason, count in skips.most_common():
        print(f"{count:7d}  {reason}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
