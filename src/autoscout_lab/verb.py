"""The verb `bench`, as the list of verbs shows it."""

from autoscout.cli.verbs import Verb

BENCH = Verb(name="bench", home="autoscout_lab.cli:app", help="Compare searchers on recorded measurements.")

__all__ = ["BENCH"]
