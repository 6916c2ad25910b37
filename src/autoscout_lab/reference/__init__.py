"""Other people's simulators, habits included: variants of the published schedulers that reproduce their outcomes job by job.

They are no plug-ins and nobody should tune them: they show that the engine is right. Golden tests hold them to the outcomes of the
simulators they are named after, and `python -m autoscout_lab.reference` compares job by job on a trace of yours.
"""
