"""Prints the table of file and function sizes, and fails on what is larger than the house style allows.

Limits: 500 lines a file, 80 lines a function. Exceptions are listed below with a reason.
"""

from __future__ import annotations

import ast
import statistics
import sys
from pathlib import Path

FILE_LINES, FUNCTION_LINES = 500, 80
EXCEPTIONS: dict[str, str] = {}
"""`path` or `path:function` -> why it may be larger."""


def main() -> int:
    """Print the table; 1 when something is too large."""
    files: dict[str, int] = {}
    functions: dict[str, int] = {}
    for path in sorted(p for folder in ("src", "benchmarks", "scripts", "tests") for p in Path(folder).rglob("*.py")):
        text = path.read_text()
        files[str(path)] = text.count("\n")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                functions[f"{path}:{node.name}"] = (node.end_lineno or node.lineno) - node.lineno + 1
    source = [lines for name, lines in files.items() if name.startswith("src")]
    inside = sorted(lines for name, lines in functions.items() if name.startswith("src"))
    print(f"source files {len(source)}: median {statistics.median(source):.0f}, max {max(source)} lines")
    print(f"functions {len(inside)}: median {statistics.median(inside):.0f}, p90 {inside[int(0.9 * len(inside))]}, max {inside[-1]} lines")
    large = [f"{name}: {lines} lines" for name, lines in files.items() if lines > FILE_LINES and name not in EXCEPTIONS]
    large += [f"{name}: {lines} lines" for name, lines in functions.items() if lines > FUNCTION_LINES and name not in EXCEPTIONS]
    for row in large:
        print(f"too large: {row}", file=sys.stderr)
    return 1 if large else 0


if __name__ == "__main__":
    sys.exit(main())
