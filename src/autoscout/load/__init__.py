"""Measuring servers that speak the OpenAI API: the plan of a trial, the load, the trial program, and what its result means."""
