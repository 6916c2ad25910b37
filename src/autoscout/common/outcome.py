"""What an executor knows of a launch for certain, as a measurement, and the line of a log that says why a program failed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence

from autoscout.core.launch import Completed
from autoscout.core.trial import Measurement, Status

LINE_CHARS = 300  # of a reason
READ_CHARS = 200_000  # of the end of a log; a cause lies near the end

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor movements
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links
    r"|\x1b[ -/]*[0-~]"  # the rest
)
_PREFIX = (
    re.compile(  # of log lines: `(EngineCore_0 pid=7) ERROR 11-16 09:15:55 [core.py:12] `, `[rank0]: `, `2026-11-16 09:15:55,1 - ERROR - `
        r"(?:\(\w[^()]{0,60} pid=\d+\) ?)?"
        r"(?:\[(?:rank|default)\d+\]: ?)?"
        r"(?:(?:ERROR|CRITICAL|FATAL|WARNING|INFO) [\d:., -]{8,30} (?:\[[^\]]{1,80}\]:? ?)?)?"
        r"(?:\d{4}-\d\d-\d\d[T ][\d:.,+Z]{5,20} (?:- )?(?:\[?(?:ERROR|CRITICAL|FATAL)\]?:? ?(?:- )?))?"
    )
)
_EXCEPTION = re.compile(r"(?P<kind>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Failure|Fault))(?:: ?(?P<said>.*))?$")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)")
_PLACE = re.compile(r'\s+File ".*", line \d+')
_AFTER_TRACEBACK = re.compile(r"(?P<kind>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: ?(?P<said>.*))?$")
_WRAPPER = re.compile(  # exceptions that only say that another process, whose log stands above, has failed
    r"root cause above|stack trace above|stack trace for root cause|Engine core (?:initialization|proc)|ChildFailedError|CalledProcessError"
    r"|returned non-zero exit status|SystemExit: \d+$|ProcessRaisedException|died unexpectedly|exited unexpectedly|KeyboardInterrupt"
)
_PYDANTIC = re.compile(r"\d+ validation errors? for \S+")
_PYDANTIC_TYPE = re.compile(r"\s*\[type=\w+.*$")
_DEVICE = re.compile(
    r"CUDA out of memory|CUDA error|cudaError\w+|CU(?:BLAS|DNN)_STATUS_(?!SUCCESS)\w+|HIP (?:error|out of memory)|hipError\w+"
    r"|OutOfMemoryError|NCCL error|nccl(?:UnhandledCuda|System|Internal|Remote)Error|std::bad_alloc|RESOURCE_EXHAUSTED|GGML_ASSERT\("
)
_USAGE = re.compile(r"(?:[\w./-]+(?: [\w-]+)*: )?error: .+|Error: (?:Invalid value|No such|Missing|Got unexpected) .+", re.IGNORECASE)
_PANIC = re.compile(r"thread '.*' (?:\(\d+\) )?panicked at (?P<place>.*)|(?P<go>panic: .+|fatal error: .+)")
_ERROR = re.compile(
    r"No such file or directory|command not found|: not found$|Permission denied|Address already in use|Segmentation fault|core dumped"
    r"|^Killed\b|^Aborted\b|cannot open shared object|\b(?:FATAL|PANIC|CRITICAL|fatal|FAILED)\b|\b(?:ERROR|Error|error)\b:?",
)
_NOISE = re.compile(
    r"\d+%\|"  # a progress bar
    r"|^[\s^~=*#+.|<>_-]*$"  # rulers, and the marks below a line of a traceback
    r"|\bwarn(?:ing)?\b|resource_tracker|For further information visit|^note: |RUST_BACKTRACE|^\s*warnings\.warn\(|^(?:HINT|usage):",
    re.IGNORECASE,
)


def plain_text(text: str) -> str:
    """A log as a person would see it in the end: no terminal escapes, and of a line that was drawn again only the last drawing."""
    lines = _ESCAPES.sub("", text.replace("\r\n", "\n")).split("\n")
    return "\n".join(_last_drawing(line) for line in lines)


def informative_line(text: str) -> str:
    """The line of a log that tells why the program failed, at most 300 characters long; empty when it said nothing.

    The strongest sign counts, the last of several: an error of pydantic, a device, NCCL or a panic; then the exception of a traceback or
    the complaint of a command-line parser; then a line that speaks of an error; then the last line.

    >>> informative_line("Traceback (most recent call last):\\n  File 'a.py', line 1\\nValueError: no such mode\\n")
    'ValueError: no such mode'
    """
    lines = [_PREFIX.sub("", line, count=1) for line in plain_text(text[-READ_CHARS:]).split("\n")]
    signs = (_causes, _complaints, _errors, _wrappers, _last)
    for sign in signs:
        matches = list(sign(lines))
        if matches:
            return _bounded(matches[-1])
    return ""


def failure(completed: Completed) -> Measurement | None:
    """The measurement of a launch that was stopped or failed; None when it ended by itself with exit code 0.

    >>> failure(Completed(returncode=3, stderr="no space left on device")).reason
    'exit code 3: no space left on device'
    """
    said = informative_line(completed.log_tail)
    why = f": {said}" if said else ""
    if completed.cancelled:
        return Measurement(status=Status.ABORTED, reason="stopped before it ended")
    if completed.out_of_memory:
        return Measurement(status=Status.OOM_RUN, reason="killed for memory", log_tail=completed.log_tail)
    if completed.timed_out:
        return Measurement(status=Status.TIMEOUT, reason=f"did not end within {completed.wall_s:.3g} s", log_tail=completed.log_tail)
    if completed.returncode is None:
        return Measurement(status=Status.CRASHED, reason=f"could not be started{why}", log_tail=completed.log_tail)
    if completed.returncode != 0:
        return Measurement(status=Status.CRASHED, reason=f"exit code {completed.returncode}{why}", log_tail=completed.log_tail)
    return None


def is_number(value: object) -> bool:
    """Whether something that was read is a finite number that floats hold."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _last_drawing(line: str) -> str:
    drawn = [part for part in line.split("\r") if part.strip()]
    return "".join(letter if letter.isprintable() or letter == "\t" else " " for letter in drawn[-1]) if drawn else ""


def _bounded(line: str) -> str:
    line = " ".join(line.split())
    return line if len(line) <= LINE_CHARS else f"{line[: LINE_CHARS - 1]}…"


def _causes(lines: Sequence[str]) -> Iterator[str]:
    """Causes that programs state in a form of their own."""
    for at, line in enumerate(lines):
        if match := _PYDANTIC.search(line):
            yield _pydantic(match[0], lines[at + 1 : at + 4])
        elif match := _PANIC.match(line):
            place = match["go"] or f"panicked at {match['place']}"
            yield f"{place} {_next(lines, at)}" if place.endswith(":") else place
        elif line.startswith("terminate called"):
            yield f"{line} {what}" if (what := _next(lines, at).strip()).startswith("what():") else line
        elif _DEVICE.search(line) and not _is_source(lines, at) and not re.match(r"\s*warn", line, re.IGNORECASE):
            detail = next((_next(lines, near) for near in range(at, min(at + 4, len(lines))) if lines[near].strip() == "Last error:"), "")
            yield f"{line} {detail}" if detail else line


def _complaints(lines: Sequence[str]) -> Iterator[str]:
    """Exceptions of Python and complaints of command-line parsers, in the order in which they came."""
    return (said for said in _raised(lines, with_usage=True) if not _WRAPPER.search(said))


def _wrappers(lines: Sequence[str]) -> Iterator[str]:
    return _raised(lines, with_usage=False)


def _raised(lines: Sequence[str], *, with_usage: bool) -> Iterator[str]:
    inside = False
    for at, line in enumerate(lines):
        if _TRACEBACK.search(line):
            inside = True
            continue
        if not line or line[0].isspace():
            continue
        pattern = _AFTER_TRACEBACK if inside else _EXCEPTION
        inside = False
        if match := pattern.match(line):
            yield _exception(match["kind"], (match["said"] or "").strip(), lines, at)
        elif with_usage and _USAGE.match(line):
            yield line


def _exception(kind: str, said: str, lines: Sequence[str], at: int) -> str:
    if said:
        return f"{kind}: {said}"
    after = _next(lines, at)
    if ":" in lines[at] and after:
        return f"{kind}: {after.strip()}"  # the message begins on a line of its own
    before = next((line.strip() for line in reversed(lines[:at]) if line.strip(" ^~")), "")
    return f"{kind} at `{before}`" if before and _is_source(lines, at - 1) and not before.startswith("File ") else kind


def _errors(lines: Sequence[str]) -> Iterator[str]:
    return (line for line in lines if _ERROR.search(line) and not _NOISE.search(line))


def _last(lines: Sequence[str]) -> Iterator[str]:
    said = [line for line in lines if line.strip()]
    telling = [line for line in said if not _NOISE.search(line)]
    yield from telling[-1:] or said[-1:]


def _pydantic(head: str, after: Sequence[str]) -> str:
    """`1 validation error for ModelConfig: max_len: Input should be greater than 0`."""
    said = [part for line in after if (part := _PYDANTIC_TYPE.sub("", line).strip()) and "For further information" not in part]
    field = [said[0]] if len(said) > 1 and after and not after[0][:1].isspace() else []
    return ": ".join([head, *field, *said[len(field) : len(field) + 1]])


def _next(lines: Sequence[str], at: int) -> str:
    return next((line.strip() for line in lines[at + 1 : at + 4] if line.strip()), "")


def _is_source(lines: Sequence[str], at: int) -> bool:
    """Whether a line quotes source code in a traceback: indented, below the place that it is from."""
    return at > 0 and lines[at][:1].isspace() and any(_PLACE.match(line) for line in lines[max(0, at - 2) : at])


__all__ = ["failure", "informative_line", "is_number", "plain_text"]
