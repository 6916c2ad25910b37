"""The folder `front/`: for each point of the front the files that run it, what it changes, and what it is worth."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml

from autoscout.analysis.front import Front, FrontPoint
from autoscout.analysis.labels import KnobNote, differences
from autoscout.analysis.summary import Summary
from autoscout.common.document import PlainDumper
from autoscout.common.files import write_folder
from autoscout.core.config import Config
from autoscout.core.secrecy import hide_secrets, without_secrets
from autoscout.report.handover import diff_text, environment_text

Exported = Mapping[Config, tuple[Mapping[str, str], Mapping[str, str]]]
"""By configuration: what `backend.export` gave, and the environment variables that the system needs."""


def hand_over_front(
    folder: Path,
    summary: Summary,
    front: Front,
    exported: Exported,
    default_config: Config,
    knobs: Iterable[KnobNote] = (),
    private: Sequence[str] = (),
) -> tuple[str, ...]:
    """Write `front/NAME/` for every point that is not dominated, whole or not at all.

    Args:
        folder: Where; an earlier one is replaced once the new one is complete.
        summary: The result of the study.
        front: Its front.
        exported: For every point that is handed over.
        default_config: What the differences are counted from.
        knobs: The space's knobs, for units and help.
        private: Texts that only the owner of the files may read.

    Returns:
        The names of the points, in order.

    Raises:
        StoreError: the folder cannot be written.
    """
    notes = tuple(knobs)
    content: dict[str, str] = {}
    for point in front.handed_over:
        files, variables = exported[point.config]
        for name, text in _point_files(summary, front, point, files, variables, default_config, notes).items():
            content[f"{point.name}/{name}"] = text
    write_folder(folder, content, private)
    return tuple(point.name for point in front.handed_over)


def _point_files(
    summary: Summary,
    front: Front,
    point: FrontPoint,
    files: Mapping[str, str],
    variables: Mapping[str, str],
    default_config: Config,
    knobs: tuple[KnobNote, ...],
) -> dict[str, str]:
    changes = diff_text(differences(default_config, point.config, knobs))
    content = dict(files)
    settings = "knobs.yaml" if "config.yaml" in content else "config.yaml"  # an engine's own config.yaml is what run.sh reads
    content[settings] = yaml.dump(point.config.to_json(), Dumper=PlainDumper, sort_keys=False, allow_unicode=True)
    content["env"] = environment_text(summary.task, variables, content.get("env", ""))
    content["diff.txt"] = hide_secrets(changes)
    facts = {"study": summary.study, "task_key": summary.task.key, **point.to_json()}
    content["point.json"] = json.dumps(without_secrets(facts), indent=2) + "\n"
    content.setdefault("README.md", hide_secrets(_readme(summary, front, point, changes)))
    return content


def _readme(summary: Summary, front: Front, point: FrontPoint, changes: str) -> str:
    """What this point is good at, next to the default and the best of each goal."""
    lines = [f"# {' '.join(summary.task.system.split())}: {point.name}", "", f"A point of the front: {point.remark}.", ""]
    lines += [f"| goal | this | {front.title} | best of the front |", "|---|---|---|---|"]
    for goal in front.goals:
        best = min((each.values[goal.metric] for each in front.points), key=lambda reading, goal=goal: goal.sign * reading.value)  # type: ignore[misc]
        default = front.default.values[goal.metric] if front.default else "-"
        lines.append(f"| {goal.direction.value} `{goal.metric}` | {point.values[goal.metric]} | {default} | {best} |")
    lines += ["", front.note, "", "## What it changes", "", *(f"    {line}" for line in changes.splitlines()), ""]
    return "\n".join(lines)


__all__ = ["Exported", "hand_over_front"]
