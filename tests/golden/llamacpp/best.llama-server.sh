#!/bin/sh
set -eu
export OMP_WAIT_POLICY=passive
if [ -z "${MODEL:-}" ]; then
  MODEL=/var/cache/autoscout/random-2b1f9280aeec-q8_0.gguf
fi
# The same configuration for the llama-server program of llama.cpp.
exec llama-server --model "$MODEL" --ctx-size 0 --threads 2 --threads-batch 2 --batch-size 2048 --ubatch-size 512 --parallel 8 --flash-attn auto --cache-type-k f16 --cache-type-v f16 --load-mode auto --cont-batching --kv-unified --repack --host "${HOST:-127.0.0.1}" --port "${PORT:-8080}" "$@"
