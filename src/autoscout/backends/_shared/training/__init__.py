"""What all training backends share: the trial program, the built-in model, what a run means, and the hand-over.

`trial`, `watch`, `steady`, `losses`, `gpt`, `parallel` and `builtin` run inside a trial and need nothing but the standard library, and
PyTorch for the last three, so that they run wherever a user trains.
"""
