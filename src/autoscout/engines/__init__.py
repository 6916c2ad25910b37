"""Inference engines with flags in tables: what `vllm` and `sglang` share. Each brings a table, its knobs and its own defaults."""
