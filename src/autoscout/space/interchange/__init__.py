"""Spaces from and for other tools: ConfigSpace JSON, vLLM sweep files, DeepSpeed-style tuning spaces.

Everything here works on files; none of the tools needs to be installed.
"""

from autoscout.space.interchange.configspace_export import Export, write_configspace
from autoscout.space.interchange.configspace_import import read_configspace
from autoscout.space.interchange.deepspeed import read_tuning_space, tuning_template
from autoscout.space.interchange.detect import read_foreign
from autoscout.space.interchange.vllm_sweep import read_sweep

__all__ = [
    "Export",
    "read_configspace",
    "read_foreign",
    "read_sweep",
    "read_tuning_space",
    "tuning_template",
    "write_configspace",
]
