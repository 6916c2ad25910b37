"""Examples of different lengths as rectangles: padded, sorted and padded, or packed. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence

Row = list[list[int]]
"""The examples that one row of a batch holds, one after the other."""


def rows(examples: Sequence[list[int]], how: str, length: int) -> list[Row]:
    """The rows of one step's examples.

    Args:
        examples: Token numbers, none longer than `length`.
        how: `pad`, `sort` or `pack`.
        length: Of a packed row.
    """
    if how == "pad":
        return [[example] for example in examples]
    longest_first = sorted(examples, key=len, reverse=True)
    if how == "sort":
        return [[example] for example in longest_first]
    packed: list[Row] = []
    room: list[int] = []
    for example in longest_first:  # first fit, longest first: at most 11/9 of the fewest rows, and 6/9 more
        at = next((number for number, space in enumerate(room) if space >= len(example)), None)
        if at is None:
            packed.append([example])
            room.append(length - len(example))
        else:
            packed[at].append(example)
            room[at] -= len(example)
    return packed


def micro_batches(rows: Sequence[Row], size: int) -> list[list[Row]]:
    """The rows in groups of at most `size`."""
    return [list(rows[start : start + size]) for start in range(0, len(rows), size)]


def targets(examples: Sequence[list[int]]) -> int:
    """Tokens that are predicted: all but the first of every example. What is useful work, however it is batched."""
    return sum(len(example) - 1 for example in examples)
