"""The gate of the simulators: no source that was left out may get worse than its record by more than a point."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RECORD = Path(__file__).with_name("simulators_record.json")
POINT = 0.01
"""By how much the error or the regret of a source may grow, as a share."""
JUDGED = {"mape": "error", "regret": "regret", "false_fits": "failures said to fit", "false_not": "runs said not to fit"}


def worse(record: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """One line for each figure of a source that got worse by more than a point, or is gone.

    >>> worse({"training": {"sources": {"a": {"mape": 0.1}}}}, {"training": {"sources": {"a": {"mape": 0.12}}}})
    ['training, a: error 12.0 %, on record 10.0 %']
    """
    lines = []
    for kind, part in record.items():
        if not isinstance(part, Mapping):
            continue
        now = found.get(kind, {}).get("sources", {})
        for name, then in part["sources"].items():
            if name not in now:
                lines.append(f"{kind}, {name}: no longer judged")
                continue
            for key, word in JUDGED.items():
                before, after = then.get(key), now[name].get(key)
                if before is not None and (after is None or after > before + POINT):
                    said = "none" if after is None else f"{100 * after:.1f} %"
                    lines.append(f"{kind}, {name}: {word} {said}, on record {100 * before:.1f} %")
    return lines


def recorded() -> dict[str, Any]:
    """The figures that were accepted last."""
    record: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return record


def accept(found: Mapping[str, Any]) -> None:
    """Put figures on record: only with a reason in the commit that does it, where one is worse."""
    RECORD.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


__all__ = ["accept", "recorded", "worse"]
