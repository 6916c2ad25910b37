from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from autoscout.common.files import make_folders


@pytest.mark.parametrize(("user", "expected"), [(0, 0o711), (1000, 0o700)])
def test_only_root_opens_the_folders_it_makes(user: int, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    tmp_path.chmod(0o700)
    before = os.umask(0o077)
    try:
        make_folders(tmp_path / "a" / "b")
        make_folders(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a", tmp_path / "a" / "b", tmp_path)]
    assert modes == [expected, expected, 0o700], "what was there before is left alone"
