"""Every number that `hybrid` was given rather than fitted, each with its unit and the formula it is part of.

A number may stay only while the search gets worse without it: `python -m benchmarks.search`, with seeds that are not reported.
"""

# --- which configurations are compared ---------------------------------------------------------------------------------------------------
MAX_LISTED = 12_000
"""Configurations: a space of at most this many is listed whole; of a larger one a quarter of this many are drawn."""
RANDOM_CANDIDATES = 450
"""Configurations that are drawn at random for the model at every step."""
BEST_CONFIGS = 4
"""Configurations: how many of the best have their neighbours weighed."""
MAX_ANSWERS = 500
"""Answers that the model is fitted to at most, two fifths the best and one the newest: it inverts a matrix of this size at every step."""

# --- losses as targets -------------------------------------------------------------------------------------------------------------------
TARGET_TAIL = 1.5
"""Standard deviations: target = TARGET_TAIL * tanh(z / TARGET_TAIL) for z > 0; how slow the slow ones are says nothing about fast ones."""
USUAL_DEVIATION = 0.5
"""Of the logarithm of a loss: the standard deviation that is expected at first; the first trials that work are often alike."""
EARLY_TRIALS = 20
"""Trials after which that has nearly faded: it is worth PRIOR_TRIALS * (1 - trials / EARLY_TRIALS)."""
SIMULATED_NOISE = 0.25
"""Squared standard deviations of the target: added variance of a simulated answer where there are measurements too."""

# --- chance of success: log odds = PRIOR_ODDS + level + slope * knobs -------------------------------------------------------------------
PRIOR_ODDS = 1.5
"""Log odds to work that are expected of any configuration: 4 in 5."""
LEVEL_DEVIATION = 2.0
"""Log odds: standard deviation of the level."""
SLOPE_DEVIATION = 6.0
"""Log odds: standard deviation of the change along one knob from end to end."""
NEWTON_STEPS = 12
"""Steps of Newton's method at most."""
SUCCESS_EXPONENT_SCALE = 40.0
"""Successes: a candidate is worth improvement * chance ** (1 + successes / SUCCESS_EXPONENT_SCALE)."""
MIN_SUCCESS_CHANCE = 0.65
"""Chance of success below which a cautious search takes a candidate last."""

# --- simulators and past studies ---------------------------------------------------------------------------------------------------------
PRIOR_TRIALS = 4.0
"""Trials: worth of what was expected before there were any, and trials from which on a simulator and the plain model are compared."""
BIAS_DEVIATION = 0.3
"""Standard deviation expected of what is wrong with a simulator everywhere: the logarithm of its factor; the share of its log odds."""
MIN_SIMULATOR_ERROR = 0.05
"""Of a logarithm: no simulator is believed to be more exact."""
MAX_MEMORY_ODDS = 4.0
"""Log odds beyond which a simulator's word about memory is not believed: 1 in 55."""
MAX_LEAD = 2.0
"""Nats by which the plain model must be ahead before a simulator is dropped; also the most that a single trial can count."""
MAX_SIMULATOR_WEIGHT = 0.95
"""Weight of a simulator's word about memory at most; the rest is the plain model's."""
MIN_PREDICTION_ERROR = 0.2
"""Standard deviation of a target below which no prediction counts as more exact when models are compared."""

# --- several goals -----------------------------------------------------------------------------------------------------------------------
FRONT_DIRECTIONS = 64
"""Directions from the reference in which the reach of the front is followed."""
QUADRATURE_NODES = 12
"""Distances along each direction at which the chance to reach farther is integrated."""
QUADRATURE_LIMIT = 5.0
"""Standard deviations above the mean where that integral ends."""
REFERENCE_MARGIN = 0.2
"""Reference = worst of the front + REFERENCE_MARGIN * (worst - best + 1), in targets; without it its ends count for nothing."""
