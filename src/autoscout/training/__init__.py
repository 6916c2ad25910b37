"""Training: what scripts that AutoScout tunes call, and what all training backends share.

    from autoscout import training

    settings = training.config()                      # {} when nobody tunes; then the script's own defaults count
    micro_batch = settings.get("micro_batch", 4)
    ...
    for batch in batches:
        loss = train_step(batch)
        training.step(loss=loss, tokens=batch.numel())

`training.callback()` does the latter for the Trainers of Hugging Face and Lightning.

Inside a trial run `trial`, `runner`, `steps`, `protocol`, `gpt` and `builtin`. They need nothing but the standard library, and PyTorch for
the last two and the turns of `protocol`, so that they run wherever a user trains.
"""

from autoscout.training.callback import callback
from autoscout.training.hook import CONFIG, STEPS, config, memory_gib, peak_memory_gib, report, stage, step

__all__ = ["CONFIG", "STEPS", "callback", "config", "memory_gib", "peak_memory_gib", "report", "stage", "step"]
