"""Where teams look at their experiments: one module per tracker."""
