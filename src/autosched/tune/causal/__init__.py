"""The causal performance model: settings act on intermediate metrics, these on the objective."""
