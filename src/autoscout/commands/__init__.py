"""Commands with `{knob}` slots: what the backend `command` and the training backends share."""
