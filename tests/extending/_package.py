"""Installs the package that a page of docs/extending describes, without pip and without network.

A page shows whole files, each in a fenced block whose first line is a comment with the file's name:

    ```python
    # autoscout_sort/backend.py
    ...
    ```

    ```toml
    # pyproject.toml
    [project]
    name = "autoscout-sort"
    version = "0.1"

    [project.entry-points."autoscout.backends"]
    sort = "autoscout_sort.backend:SortBackend"
    ```

Use it in a test like this:

    package = install(page("backend"), tmp_path)             # files, and a dist-info with the entry points
    done = package.python("-m", "pytest", "-q", "test_sort.py")     # in a new process that sees the package
    done = package.autoscout("tune", "sort.yaml", "--max-trials", "4")
    assert done.returncode == 0, done.stderr

Commands run in the package's folder. A new process is needed because entry points are read once per process.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
_FILE = re.compile(r"^```\w+\n(?:#|//) ([\w./-]+\.\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Package:
    """A package in a folder of its own that is on the path of the processes it starts."""

    folder: Path

    def python(self, *arguments: str, limit_s: float = 300.0) -> subprocess.CompletedProcess[str]:
        """Run Python with the package installed."""
        path = os.pathsep.join(part for part in (str(self.folder), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")) if part)
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=limit_s,
        )

    def autoscout(self, *arguments: str, limit_s: float = 300.0) -> subprocess.CompletedProcess[str]:
        """Run the command line with the package installed."""
        return self.python("-m", "autoscout", *arguments, limit_s=limit_s)


def page(name: str) -> Path:
    """A page of docs/extending by name."""
    return ROOT / "docs" / "extending" / f"{name}.md"


def files(path: Path) -> dict[str, str]:
    """The files that a page shows, by name."""
    return dict(_FILE.findall(path.read_text(encoding="utf-8")))


def install(path: Path, tmp_path: Path) -> Package:
    """Write the files of a page to a folder and announce its entry points there as an installer would."""
    folder = tmp_path / path.stem
    shown = files(path)
    for name, text in shown.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    project = tomllib.loads(shown["pyproject.toml"])["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n", encoding="utf-8")
    groups = project["entry-points"]
    lines = [f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items()) for group, points in groups.items()]
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    return Package(folder)
