"""Judging searchers on recorded measurements: tables, replay, races, scores."""

from autoscout_lab.bench.race import Entry, Race, run_race
from autoscout_lab.bench.replay import Replay, Run, replay
from autoscout_lab.bench.score import Score, Scores, score
from autoscout_lab.bench.table import Table
from autoscout_lab.bench.tables import Source, find_tables, load_table

__all__ = [
    "Entry",
    "Race",
    "Replay",
    "Run",
    "Score",
    "Scores",
    "Source",
    "Table",
    "find_tables",
    "load_table",
    "replay",
    "run_race",
    "score",
]
