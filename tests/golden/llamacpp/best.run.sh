#!/bin/sh
set -eu
here="$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)"
[ -n "${PYTHON:-}" ] || PYTHON=/usr/bin/python3
command -v "$PYTHON" > /dev/null || PYTHON=python3
export OMP_WAIT_POLICY=passive
if [ -z "${MODEL:-}" ]; then
  MODEL=/var/cache/autoscout/random-2b1f9280aeec-q8_0.gguf
  [ -f "$MODEL" ] || "$PYTHON" -m autoscout.backends.llamacpp.prepare random q8_0 /var/cache/autoscout  # a file that AutoScout made, and can make again
fi
# Serves an OpenAI-compatible API on http://127.0.0.1:8080 until Ctrl-C. HOST and PORT change the address; a HOST other
# than loopback needs a key in LLAMA_API_KEY. MODEL names the model file, where it has another place.
# Needs the Python package xllamacpp; with the llama-server program instead: ./llama-server.sh
exec "$PYTHON" "$here/server.py" "$here/server.json" --model "$MODEL" "$@"
