"""`autoscout sched`: the verbs of the scheduler house."""
