"""What is said of secrets in the launches that people give: their values are kept nowhere."""

from __future__ import annotations


def left_out(names: list[str]) -> str:
    """What is said of variables with secrets."""
    whose, them = ("its value is", "it") if len(names) == 1 else ("their values are", "them")
    return f"{' and '.join(names)}: {whose} kept nowhere. Set {them} in the shell that starts AutoScout if the engine needs {them}."


__all__ = ["left_out"]
