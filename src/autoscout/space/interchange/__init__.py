"""Spaces from other tools: vLLM sweep files and DeepSpeed-style tuning spaces, and whatever installed packages read.

Everything here works on files; none of the tools needs to be installed.
"""

from autoscout.space.interchange.deepspeed import read_tuning_space, tuning_template
from autoscout.space.interchange.detect import read_foreign
from autoscout.space.interchange.vllm_sweep import read_sweep

__all__ = ["read_foreign", "read_sweep", "read_tuning_space", "tuning_template"]
