#!/bin/sh
set -eu
here="$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)"
[ -n "${PYTHON:-}" ] || PYTHON=/usr/bin/python3
export OMP_WAIT_POLICY=passive
MODEL=/var/cache/autoscout/random-2b1f9280aeec-q8_0.gguf
[ -f "$MODEL" ] || "$PYTHON" -m autoscout.backends.llamacpp.prepare random q8_0 /var/cache/autoscout  # a file that AutoScout made, and can make again
# Serves an OpenAI-compatible API on http://127.0.0.1:8080 until Ctrl-C. HOST and PORT change the address; a HOST other
# than loopback needs a key in LLAMA_API_KEY. Needs the Python package xllamacpp; with the llama-server program instead:
# ./llama-server.sh
exec "$PYTHON" "$here/server.py" "$here/server.json" "$@"
