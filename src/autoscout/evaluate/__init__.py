"""How a proposal gets its number: one module per evaluator."""
