from __future__ import annotations

import os
import tempfile

os.environ["TRACKIO_DIR"] = os.environ.get("TRACKIO_DIR") or tempfile.mkdtemp(prefix="trackio-")  # read when the package is imported
