"""Checks that keep the house in order; each rule names the file, the line and what to do.

Run from the root of the repository: `python scripts/structure.py`. The rules:

- a folder of plug-ins holds plug-ins only; helpers live in the plug-in's package, in the folder's `_shared/`, or in `common/`;
- what begins with an underscore is not imported from outside the package that contains it;
- one place builds a `Study`;
- no class name is defined twice in one package;
- guides and explanations have at most 1,200 words;
- relative links of pages lead somewhere;
- drawings are small, follow the theme of the reader, and a page shows them;
- prose uses the ordinary word.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

PACKAGES = ("autoscout", "autosched", "autoscout_lab")
PLUGIN_FOLDERS = (
    *(f"autoscout/{folder}" for folder in ("backends", "search", "simulators", "execute", "store", "trackers")),
    *(f"autosched/{folder}" for folder in ("schedulers", "formats", "live")),
    "autoscout_lab/search",
    "autoscout_lab/simulators",
)
GUIDES = ("docs/guides", "docs/explanation", "docs/autosched", "docs/lab")
GUIDE_WORDS = 1200
PRIVATE_USERS = {
    "benchmarks/serving_side_by_side.py": "calls the estimator that simulators/aiconfigurator.py wraps, to time it next to ours",
    "tests/soak/fuzz_readers.py": "feeds every reader, also those that only verbs of the program call",
    "benchmarks/load.py": "measures the client that trials use",
    "scripts/pictures.py": "draws what the model inside a search believes",
    "benchmarks/simulators.py": "compares the regressions that the simulators share",
}
"""File outside src -> why it may use names that begin with an underscore. Tests may use those of the folder they mirror."""

ODD_WORDS = {
    r"foretold|foretells?": "predicted",
    r"foreseen|foresees?": "predicted",
    r"promis(e|es|ed|ing)": "expected improvement",
    r"go(es|ing)? on|went on": "continue, resume",
    r"beside": "next to, compared with",
    r"mend(s|ed|ing)?": "fix",
    r"dear(er|est|ly)?": "expensive",
    r"by lot": "at random",
    r"cannot be had": "is not available",
    r"so many": "the number",
    r"for good": "permanently",
    r"sittings?": "run",
}
"""Words that a reader stumbles over -> the ordinary one."""
SAME_CLASS_NAMES: dict[str, str] = {}
"""Class name that a package may define more than once -> why."""
DRAWING_BYTES = 40_000
COUNTED: set[str] = set()
"""Rules that print their count and do not fail yet; `--all` prints what they find."""

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)  # in a page: readers do not see it
_CODE = re.compile(r"```.*?```", re.DOTALL)
_LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")

Finding = tuple[str, int, str]
"""Path, line, what is wrong and what to do."""


def helpers_among_plugins(root: Path) -> Iterator[Finding]:
    """Modules with a leading underscore directly in a folder of plug-ins; `_shared/` is the one place for helpers."""
    for folder in PLUGIN_FOLDERS:
        for path in sorted((root / "src" / folder).glob("_*")):
            is_package = path.is_dir() and path.name not in ("_shared", "__pycache__")
            if is_package or (path.suffix == ".py" and path.name != "__init__.py"):
                yield str(path.relative_to(root)), 1, "a helper among plug-ins: move it into its plug-in's package, _shared/ or common/"


def private_imports(root: Path) -> Iterator[Finding]:
    """Underscore names and modules used from outside the package that contains them."""
    packages = {_module(path.parent / "__init__.py", root) for path in (root / "src").rglob("__init__.py")}
    for path in _python(root, "src", "tests", "benchmarks", "scripts", "examples"):
        where = path.relative_to(root).as_posix()
        if where in PRIVATE_USERS:
            continue
        importer = _module(path, root) if where.startswith("src/") else ""
        mirrored = _mirrored(path.relative_to(root)) if where.startswith("tests/") else ""
        for line, owner, name in _private_uses(ast.parse(path.read_text()), importer, packages):
            tested = mirrored and f"{owner}.".startswith(f"{mirrored}.")
            if not tested and not f"{importer}.".startswith(f"{owner}."):
                yield where, line, f"{name} belongs to {owner}: import a public name, or give it one"


def _mirrored(path: Path) -> str:
    """The package whose tests a folder holds: `tests/autoscout/search` those of it, `tests/lab` those of `autoscout_lab`."""
    house, *rest = path.parts[1:-1] or ("",)
    return ".".join(({"lab": "autoscout_lab"}.get(house, house), *rest))


def _private_uses(tree: ast.Module, importer: str, packages: set[str]) -> Iterator[tuple[int, str, str]]:
    """(line, package that contains the name, full name) of every underscore name of our packages that is used."""
    modules: dict[str, str] = {}  # local name -> module it stands for
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    modules[alias.asname] = alias.name
                yield from _owned(node.lineno, alias.name, packages)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, importer, packages)
            for alias in node.names:
                modules[alias.asname or alias.name] = f"{base}.{alias.name}"
                yield from _owned(node.lineno, f"{base}.{alias.name}", packages)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and (base := _dotted(node.value)):
            first, _, rest = base.partition(".")
            whole = ".".join(part for part in (modules.get(first, first), rest, node.attr) if part)
            if _is_module(whole.rpartition(".")[0], packages):
                yield from _owned(node.lineno, whole, packages)


def _owned(line: int, name: str, packages: set[str]) -> Iterator[tuple[int, str, str]]:
    """The innermost package around each underscore part of a dotted name of ours."""
    parts = name.split(".")
    if parts[0] not in PACKAGES:
        return
    for at, part in enumerate(parts):
        if part.startswith("_") and not part.endswith("__"):
            owner = ".".join(parts[:at])
            yield line, owner if owner in packages else owner.rpartition(".")[0], ".".join(parts[: at + 1])


def _absolute(node: ast.ImportFrom, importer: str, packages: set[str]) -> str:
    """The module that a `from ... import` names, relative ones too."""
    if not node.level:
        return node.module or ""
    here = importer.split(".") if importer in packages else importer.split(".")[:-1]
    return ".".join([*here[: len(here) - node.level + 1], *([node.module] if node.module else [])])


def _dotted(node: ast.expr) -> str:
    """`a.b.c` of an attribute chain, or nothing when it begins with something else than a name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := _dotted(node.value)):
        return f"{base}.{node.attr}"
    return ""


def _is_module(name: str, packages: set[str]) -> bool:
    """Whether a dotted name is a module of ours, and no class or object in one: those begin with a capital or sit deeper."""
    return name.split(".")[0] in PACKAGES and (name in packages or name.rpartition(".")[0] in packages) and name.split(".")[-1].islower()


def studies(root: Path) -> Iterator[Finding]:
    """More than one construction of `Study` in the source."""
    calls = []
    for path in _python(root, "src"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _dotted(node.func).rpartition(".")[2] == "Study":
                calls.append((path.relative_to(root).as_posix(), node.lineno))
    for where, line in calls if len(calls) > 1 else []:
        yield where, line, f"Study( is written in {len(calls)} places: only study/assemble.py puts a study together"


def repeated_classes(root: Path) -> Iterator[Finding]:
    """Classes, nested and private ones included, whose name another class of the same package has."""
    for package in PACKAGES:
        places: dict[str, list[tuple[str, int]]] = {}
        for path in _python(root, f"src/{package}"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name, []).append((path.relative_to(root).as_posix(), node.lineno))
        for name, (first, *others) in sorted(places.items()):
            for where, line in others if name not in SAME_CLASS_NAMES else []:
                yield where, line, f"class {name} is also defined in {first[0]}: say whose it is"


def long_guides(root: Path) -> Iterator[Finding]:
    """Guides and explanations that nobody will read to the end."""
    for path in sorted(path for folder in GUIDES for path in (root / folder).glob("*.md")):
        if (words := len(_COMMENT.sub("", path.read_text()).split())) > GUIDE_WORDS:
            yield (
                path.relative_to(root).as_posix(),
                1,
                f"{words} words; a guide has at most {GUIDE_WORDS}: split it, or move figures to results",
            )


def broken_links(root: Path) -> Iterator[Finding]:
    """Relative links to files that are not there; the site build checks anchors."""
    for path in _pages(root):
        text = _CODE.sub(lambda block: "\n" * block[0].count("\n"), path.read_text())
        for number, row in enumerate(text.splitlines(), start=1):
            for link in _LINK.findall(row):
                if not re.match(r"[a-z]+:", link) and not (path.parent / link).exists():
                    yield path.relative_to(root).as_posix(), number, f"there is no {link}"


def drawings(root: Path) -> Iterator[Finding]:
    """Drawn pictures that are large, have one theme only, run programs, or are shown nowhere."""
    names = re.findall(r'^    "([a-z-]+)": [a-z_]+,$', (root / "scripts/pictures.py").read_text(), flags=re.MULTILINE)
    pages = "\n".join(page.read_text() for page in sorted((root / "docs").rglob("*.md")))
    for name in names:
        where = f"docs/images/{name}.svg"
        if not (root / where).exists():
            yield where, 1, "is missing: run scripts/pictures.py"
            continue
        text = (root / where).read_text()
        rules = {
            "is not an SVG": ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg",
            f"has more than {DRAWING_BYTES:,} characters": len(text) < DRAWING_BYTES,
            "has no dark theme": "prefers-color-scheme: dark" in text,
            "runs a script": "<script" not in text,
            "no page shows it": f"images/{name}.svg)" in pages,
        }
        yield from ((where, 1, rule) for rule, holds in rules.items() if not holds)


def odd_words(root: Path) -> Iterator[Finding]:
    """Words for which English has an ordinary one; the page that lists them (CONTRIBUTING.md) is left out."""
    pattern = re.compile(r"\b(" + "|".join(f"(?:{words})" for words in ODD_WORDS) + r")\b", re.IGNORECASE)
    for path in [*_pages(root), *_python(root, "src")]:
        if path.name == "CONTRIBUTING.md":
            continue
        for number, text in enumerate(path.read_text().splitlines(), start=1):
            for match in pattern.finditer(text):
                usual = next(usual for words, usual in ODD_WORDS.items() if re.fullmatch(words, match[0], re.IGNORECASE))
                yield path.relative_to(root).as_posix(), number, f"'{match[0]}': write '{usual}'"


RULES: dict[str, Callable[[Path], Iterator[Finding]]] = {
    "helpers among plug-ins": helpers_among_plugins,
    "private names used from outside": private_imports,
    "constructions of Study": studies,
    "class names defined twice": repeated_classes,
    "long guides": long_guides,
    "broken links": broken_links,
    "drawings": drawings,
    "odd words": odd_words,
}


def _pages(root: Path) -> list[Path]:
    pages = (path for folder in ("docs", "skills", "src") for path in (root / folder).rglob("*.md"))
    return sorted([*root.glob("*.md"), *pages, root / "docs/llms.txt"])


def _python(root: Path, *folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (root / folder).rglob("*.py"))


def _module(path: Path, root: Path) -> str:
    parts = path.relative_to(root / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def main(root: Path) -> int:
    """Print what is out of order; 1 when anything is."""
    failed = False
    for rule, check in RULES.items():
        findings = list(check(root))
        fails = rule not in COUNTED
        print(f"{rule}: {len(findings)}")
        for where, line, what in findings if fails or "--all" in sys.argv else []:
            print(f"{where}:{line}: {what}", file=sys.stderr)
        failed = failed or (fails and bool(findings))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))
