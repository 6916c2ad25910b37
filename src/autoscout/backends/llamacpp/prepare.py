"""Makes a model file that a hand-over folder needs, when the cache it lay in was emptied.

python -m autoscout.backends.llamacpp.prepare MODEL WEIGHTS FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from autoscout.backends.llamacpp.gguf_file import GgufError
from autoscout.backends.llamacpp.model import ensure_model


def main(arguments: list[str]) -> int:
    """The command line."""
    if len(arguments) != 3:
        print("usage: python -m autoscout.backends.llamacpp.prepare MODEL WEIGHTS FOLDER", file=sys.stderr)
        return 2
    model, weights, folder = arguments
    try:
        print(ensure_model(model, weights, Path(folder)))
    except (GgufError, OSError) as error:
        print(f"{model} could not be prepared: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
