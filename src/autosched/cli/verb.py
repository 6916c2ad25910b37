"""The verb `sched`, as the list of verbs shows it."""

from autoscout.cli.verbs import Verb

SCHED = Verb(name="sched", home="autosched.cli.verbs:app", help="Simulate and tune the scheduler of a GPU cluster.")

__all__ = ["SCHED"]
