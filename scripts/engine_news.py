"""Say when a newer wheel of an engine changes flags or defaults: compare the newest wheel of the package index with our newest table.

    python scripts/engine_news.py [vllm sglang ...] [--wheel FILE]

Ends with 0 where our newest table says what the newest wheel says, or where the index cannot be reached; with 1 where it does not, after
a list of what changed. `python scripts/knob_tables.py ENGINE UNPACKED` then writes the table. `make check-engines` runs it for all engines.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from knob_tables import BACKENDS, READERS, version

PACKAGES = {"vllm": "vllm", "sglang": "sglang", "megatron": "megatron-core"}
SHOWN = 8  # added or removed values that a line shows
COMPARED = ("flag", "type", "default", "choices", "keys")
WITHIN_S = 1800.0


def numbers(text: str) -> tuple[int, ...]:
    """A version as numbers that compare; letters of pre-releases are left out."""
    return tuple(int(part) for part in re.findall(r"\d+", text.split("+")[0]))


def table(engine: str) -> dict[str, Any]:
    """Our newest table."""
    newest = max((BACKENDS / engine / "tables").glob("*.yaml"), key=lambda path: numbers(path.stem))
    data: dict[str, Any] = yaml.safe_load(newest.read_text(encoding="utf-8"))
    return data


def newest_version(package: str) -> str:
    """The newest release on the index; empty where the index cannot be reached."""
    command = [sys.executable, "-m", "pip", "index", "versions", package]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WITHIN_S)
    match = re.match(rf"{re.escape(package)} \(([^)]+)\)", done.stdout)
    return match[1] if done.returncode == 0 and match else ""


def download(package: str, release: str, folder: Path) -> Path | None:
    """The wheel; None where there is none, or it cannot be had."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--only-binary=:all:",
        "-d",
        str(folder),
        f"{package}=={release}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WITHIN_S)
    return next(folder.glob("*.whl"), None) if done.returncode == 0 else None


def read_wheel(engine: str, wheel: Path, folder: Path) -> tuple[str, dict[str, dict[str, Any]]]:
    """Version and flags of a wheel; only its sources are unpacked."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.endswith((".py", "/METADATA"))])
    return version(folder), READERS[engine](folder)


def changes(old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What differs between two tables, a sentence each: flags first, then what is said of each."""
    for name in sorted(new.keys() - old.keys()):
        row = new[name]
        yield f"new flag {row['flag']} ({row['type']}, default {row.get('default')})"
    for name in sorted(old.keys() - new.keys()):
        yield f"flag {old[name]['flag']} is gone"
    for name in sorted(old.keys() & new.keys()):
        for field in COMPARED:
            before, after = old[name].get(field), new[name].get(field)
            if before == after:
                continue
            if isinstance(before or after, list):
                added = [one for one in after or () if one not in (before or ())]
                gone = [one for one in before or () if one not in (after or ())]
                said = [f"{word} {_listed(values)}" for word, values in (("gains", added), ("loses", gone)) if values]
                yield f"{new[name]['flag']}: {field} {', '.join(said) or 'are in another order'}"
            else:
                yield f"{new[name]['flag']}: {field} {before!r} -> {after!r}"


def _listed(values: list[Any]) -> str:
    more = f" and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
    return ", ".join(map(str, values[:SHOWN])) + more


def news(engine: str, wheel: Path | None = None) -> tuple[bool, list[str]]:
    """Whether our newest table holds for the newest wheel, and what there is to say."""
    ours, package = table(engine), PACKAGES[engine]
    with tempfile.TemporaryDirectory() as scratch:
        if wheel is None:
            release = newest_version(package)
            if not release:
                return True, [f"{package}: skipped, the package index cannot be reached"]
            if numbers(release) <= numbers(str(ours["version"])):
                return True, [f"{package} {release}: there is a table"]
            wheel = download(package, release, Path(scratch))
            if wheel is None:
                return True, [f"{package} {release}: skipped, no wheel could be downloaded"]
        unpacked = Path(scratch) / "unpacked"
        try:
            number, flags = read_wheel(engine, wheel, unpacked)
        except (OSError, KeyError, ValueError, AssertionError, SyntaxError, zipfile.BadZipFile) as error:
            return False, [f"{package}: {wheel.name} cannot be read, its sources are laid out in another way: {error!r}"]
    found = list(changes(ours["flags"], flags))
    head = f"{package} {number} against our table of {ours['version']}: {len(found)} changes"
    return not found, [head, *(f"  {line}" for line in found)]


def main() -> int:
    """Tell the news of the engines that are named, or of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", nargs="*", metavar="ENGINE", help=f"of {', '.join(PACKAGES)}; all when none is named")
    parser.add_argument("--wheel", type=Path, help="compare this wheel instead of the newest of the index")
    asked = parser.parse_args()
    if unknown := [name for name in asked.engines if name not in PACKAGES]:
        parser.error(f"{unknown[0]} is none of {', '.join(PACKAGES)}")
    if asked.wheel is not None and len(asked.engines) != 1:
        parser.error("--wheel goes with one engine")
    told = [news(engine, asked.wheel) for engine in asked.engines or PACKAGES]
    print("\n".join(line for _, lines in told for line in lines))
    return 0 if all(same for same, _ in told) else 1


if __name__ == "__main__":
    sys.exit(main())
