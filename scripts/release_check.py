"""Builds the package as a release would, and tries it as a user would: `make release-check`; the files are left in dist/.

`--rehearse` does everything and passes although the public address is not decided and the version not written up; both are said.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

from metadata import LINK, PLACEHOLDER

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
NEEDED = ("LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "Makefile", "pyproject.toml", "scripts/metadata.py", "tests/conftest.py")
FOREIGN = re.compile(r"(^|/)(\.git|\.venv[^/]*|shared|autoscout_results|\.device)/")
CAMPAIGN = re.compile(r"```yaml\n# campaign\.yaml\n(.*?)```", re.DOTALL)


class ReleaseError(Exception):
    """The package is not ready."""


def run(*words: str | Path, where: Path = ROOT) -> str:
    """What a command prints.

    Raises:
        ReleaseError: it ended with an error.
    """
    done = subprocess.run([str(word) for word in words], cwd=where, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(str(word) for word in words)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """The source archive, and the wheel that is built from it and not from the checkout."""
    run(sys.executable, "-m", "build", "--installer", "pip", "--outdir", folder)
    return next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))


def undecided(metadata: str, version: str) -> list[str]:
    """What only people can decide."""
    faults = []
    if PLACEHOLDER in metadata:
        faults.append(f"the public address is still a placeholder ({PLACEHOLDER}): set `repository` in pyproject.toml, once")
    if not re.search(rf"^## \[{re.escape(version)}\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE):
        faults.append(f"CHANGELOG.md has no section for version {version}")
    if f"version: {version}\n" not in (ROOT / "CITATION.cff").read_text(encoding="utf-8"):
        faults.append(f"CITATION.cff names another version than {version}")
    tags = subprocess.run(["git", "tag", "--points-at", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    if tags and f"v{version}" not in tags:
        faults.append(f"the tag {tags[0]} is not v{version}, the version in src/autoscout/__init__.py")
    return faults


def check_contents(source: Path, wheel: Path) -> None:
    """Both archives hold what they must, and nothing of the machine that built them.

    Raises:
        ReleaseError: something is missing or foreign.
    """
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(wheel) as packed:
        parts = packed.namelist()
    faults = [f"{source.name} lacks {name}" for name in NEEDED if name not in names]
    faults += [f"{source.name} holds {name}" for name in names if FOREIGN.search(name)]
    tops = {name.partition("/")[0] for name in parts if ".dist-info" not in name.partition("/")[0]}
    if tops != {"autoscout", "autosched", "autoscout_lab"}:
        faults.append(f"{wheel.name} holds {', '.join(sorted(tops))}")
    faults += [f"{wheel.name} lacks {name}" for name in ("autoscout/py.typed", "autoscout/cli/main.py") if name not in parts]
    if faults:
        raise ReleaseError("\n".join(faults))


def metadata_of(wheel: Path) -> str:
    """The metadata of a wheel, whose body is the README."""
    with zipfile.ZipFile(wheel) as packed:
        name = next(name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
        return packed.read(name).decode()


def check_readme(metadata: str) -> None:
    """Every link of the README leads somewhere from a package index.

    Raises:
        ReleaseError: a link is relative.
    """
    body = str(Parser().parsestr(metadata).get_payload())
    if links := [link[3] for link in LINK.finditer(body)]:
        raise ReleaseError(f"links of the README that break on a package index: {', '.join(links)}")


def try_wheel(wheel: Path, version: str) -> None:
    """Install the wheel in an environment of its own, in an empty folder, and run the README's campaign.

    Raises:
        ReleaseError: something of it fails.
    """
    block = CAMPAIGN.search((ROOT / "README.md").read_text(encoding="utf-8"))
    if block is None:
        raise ReleaseError("README.md shows no campaign.yaml")
    with tempfile.TemporaryDirectory(prefix="autoscout-release-") as name:
        folder = Path(name)
        venv.create(folder / "env")
        python = folder / "env" / "bin" / "python"
        pip = (sys.executable, "-m", "pip", "--python", python)  # a pip of its own would take seconds to install
        run(*pip, "install", "--quiet", "--no-compile", "--disable-pip-version-check", wheel, where=folder)
        (folder / "campaign.yaml").write_text(block[1], encoding="utf-8")
        program = folder / "env" / "bin" / "autoscout"
        if version not in run(program, "--version", where=folder):
            raise ReleaseError(f"`autoscout --version` does not say {version}")
        run(program, "tune", "campaign.yaml", "--json", where=folder)


def main() -> int:
    """0 when a release could go out."""
    is_rehearsal = "--rehearse" in sys.argv
    try:
        with tempfile.TemporaryDirectory(prefix="autoscout-dist-") as name:
            source, wheel = build(Path(name))
            metadata = metadata_of(wheel)
            version = str(Parser().parsestr(metadata)["Version"])
            faults = undecided(metadata, version)
            for fault in faults:
                print(f"release-check: {fault}", file=sys.stderr)
            if faults and not is_rehearsal:
                return 2
            check_contents(source, wheel)
            check_readme(metadata)
            run(sys.executable, "-m", "twine", "check", "--strict", source, wheel)
            try_wheel(wheel, version)
            shutil.rmtree(DIST, ignore_errors=True)
            shutil.copytree(name, DIST)
    except ReleaseError as refusal:
        print(f"release-check: {refusal}", file=sys.stderr)
        return 2
    words = "rehearsed; the above is to be decided before a release" if faults else "ready"
    print(f"{source.name} and {wheel.name} are in dist/: {words}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
