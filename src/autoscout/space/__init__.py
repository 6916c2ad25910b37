"""What may be chosen: knobs, conditions, constraints."""

from autoscout.space.constraint import Constraint
from autoscout.space.counting import Count
from autoscout.space.knobs import Choice, Flag, Grid, Knob
from autoscout.space.listed import Listed
from autoscout.space.schema import json_schema
from autoscout.space.space import Space
from autoscout.space.yaml import read_space, write_space

__all__ = [
    "Choice",
    "Constraint",
    "Count",
    "Flag",
    "Grid",
    "Knob",
    "Listed",
    "Space",
    "json_schema",
    "read_space",
    "write_space",
]
