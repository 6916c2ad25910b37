"""Makes the model file that a trial or a hand-over folder needs, where it is not in the cache.

python -m autoscout.backends.llamacpp.prepare MODEL WEIGHTS FOLDER [FINGERPRINT]
"""

from __future__ import annotations

import sys
from pathlib import Path

from autoscout.backends.llamacpp.gguf_file import GgufError
from autoscout.backends.llamacpp.model import ensure_model, model_facts


def main(arguments: list[str]) -> int:
    """The command line."""
    if len(arguments) not in (3, 4):
        print("usage: python -m autoscout.backends.llamacpp.prepare MODEL WEIGHTS FOLDER [FINGERPRINT]", file=sys.stderr)
        return 2
    model, weights, folder, *fingerprint = arguments
    try:
        if fingerprint and model_facts(model).fingerprint != fingerprint[0]:
            print(f"the model file {model} is not the one the study began with", file=sys.stderr)
            return 1
        print(ensure_model(model, weights, Path(folder)))
    except (GgufError, OSError) as error:
        print(f"{model} could not be prepared: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
