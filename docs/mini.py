"""The search of the AutoScout paper in one page: a tree over structure, steps along numbers, and a bandit between the two.

Run it: `python docs/mini.py`. It tunes a toy training job; every part of it is also in `autoscout.search.hybrid_paper`. The default
searcher, `autoscout.search.hybrid`, has a model of the trials instead.
"""

import math
import random

GPUS, LAYERS = 16, 24
SPARSE = {"tp": [1, 2, 4, 8], "pp": [1, 2, 4, 8], "recompute": [False, True]}
DENSE = {"micro_batch": [1, 2, 4, 8, 16], "bucket_mb": [1, 2, 4, 8, 16, 32, 64]}


def valid(structure):
    """Constraints over the structure: all GPUs are used, layers divide evenly."""
    model = structure.get("tp", 1) * structure.get("pp", 1)
    return GPUS % model == 0 and LAYERS % structure.get("pp", 1) == 0


def masked(structure, point):
    """M(s): without data parallelism there is no bucket; the knob is hidden, its value is kept for later."""
    alone = structure["tp"] * structure["pp"] == GPUS
    return {name: value for name, value in point.items() if not (alone and name == "bucket_mb")}


def measure(structure, point):
    """Seconds per step of the toy job; infinite when it runs out of memory."""
    tp, pp, batch = structure["tp"], structure["pp"], point["micro_batch"]
    memory = 96 / (tp * pp) + batch * (2 if structure["recompute"] else 9) / tp
    if memory > 40:
        return math.inf
    bubble = 1 + 0.4 * (pp - 1) / (GPUS / (tp * pp) + 8 / batch)
    talk = 1 + 0.12 * math.log2(tp) + (0.05 * abs(math.log2(point.get("bucket_mb", 16) / 16)))
    return 4.0 * bubble * talk * (1.25 if structure["recompute"] else 1.0) * (1 + 0.6 / batch)


class Tree:
    """MCTS over one ordering of the structure; a node's statistics are those of the trials below it."""

    def __init__(self, ordering):
        self.ordering, self.credit = ordering, 0.0

    def propose(self, trials, rng):
        best = min((cost for _, _, cost in trials), default=1.0)
        structure = {}
        for name in self.ordering:
            choices = [value for value in SPARSE[name] if valid({**structure, name: value})]
            below = {value: [t for t in trials if {**structure, name: value}.items() <= t[0].items()] for value in choices}
            fresh = [value for value in choices if not below[value]]
            if fresh:
                structure[name] = rng.choice(fresh)
                continue
            total = sum(map(len, below.values()))

            def bound(value, below=below, total=total):
                mean = sum(best / cost for _, _, cost in below[value]) / len(below[value])
                return mean + 0.5 * math.sqrt(math.log(total) / len(below[value]))

            structure[name] = max(choices, key=bound)
        return structure


class Coordinate:
    """One number at a time: success goes on with a longer step, failure turns round and moves to the next number."""

    def __init__(self):
        self.at, self.direction, self.step = 0, dict.fromkeys(DENSE, 1), dict.fromkeys(DENSE, 1)

    def propose(self, point):
        name = list(DENSE)[self.at]
        values = DENSE[name]
        place = values.index(point[name]) + self.direction[name] * self.step[name]
        return {**point, name: values[max(0, min(len(values) - 1, place))]}

    def learn(self, success):
        name = list(DENSE)[self.at]
        if success:
            self.step[name] = min(4, 2 * self.step[name])
        else:
            self.direction[name], self.step[name] = -self.direction[name], 1
            self.at = (self.at + 1) % len(DENSE)


def upper(rewards, total):
    """UCB1 with decaying exploration; what was never tried comes first."""
    return sum(rewards) / len(rewards) + 0.9**total * math.sqrt(math.log(total) / len(rewards)) if rewards else math.inf


def tune(budget=60, seed=0):
    """The best trial found, and how many were measured."""
    rng = random.Random(seed)
    trials, known = [], {}

    def cost(structure, point):
        """Measure, unless the cell is known already."""
        key = (*sorted(structure.items()), *sorted(masked(structure, point).items()))
        if key not in known:
            known[key] = measure(structure, masked(structure, point))
            trials.append((structure, point, known[key]))
        return known[key]

    trees = [Tree(rng.sample(list(SPARSE), len(SPARSE))) for _ in range(4)]
    dense, pulls = Coordinate(), {"sparse": [], "dense": []}
    base, point = {"tp": 4, "pp": 1, "recompute": True}, {"micro_batch": 1, "bucket_mb": 1}
    turn = stale = 0
    while len(trials) < budget and stale < 20:
        tree = trees[turn % len(trees)]
        candidate, moved = tree.propose(trials, rng), dense.propose(point)
        before = len(trials)
        # The 2x2 grid: each half of the search is judged with the other half held fixed.
        bb, bc, cb, cc = cost(base, point), cost(base, moved), cost(candidate, point), cost(candidate, moved)
        worst = max(c for c in known.values() if c < math.inf)
        bb, bc, cb, cc = (min(c, 2 * worst) for c in (bb, bc, cb, cc))
        gains = {"sparse": ((bb - cb) + (bc - cc)) / (2 * bb), "dense": ((bb - bc) + (cb - cc)) / (2 * bb)}
        total = 1 + len(pulls["sparse"]) + len(pulls["dense"])
        arm = max(pulls, key=lambda name: upper(pulls[name], total))
        pulls[arm].append(gains[arm])
        if arm == "dense":
            dense.learn(bc < bb)
        else:
            tree.credit += min(1.0, bb / min(cb, cc))
            turn += 1
            if turn % len(trees) == 0 and len(trees) > 1:  # a round of the tournament is over: the worse half leaves
                trees = sorted(trees, key=lambda t: -t.credit)[: (len(trees) + 1) // 2][::-1]
        base, point, _ = min(trials, key=lambda t: t[2])
        stale = 0 if len(trials) > before else stale + 1
    return min(trials, key=lambda t: t[2]), len(trials)


if __name__ == "__main__":
    (structure, point, seconds), spent = tune()
    print(f"{seconds:.2f} s/step after {spent} measurements: {structure} {masked(structure, point)}")
