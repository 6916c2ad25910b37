"""Cheap predictors: one module per simulator."""
