"""The hand-over folder `best/`: files that run the answer, what it changes, and what the change is worth."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import yaml

from autoscout.analysis.contributions import Contribution
from autoscout.analysis.labels import Difference, KnobNote, differences, show_limit
from autoscout.analysis.summary import Summary
from autoscout.analysis.verdict import Verdict
from autoscout.common.document import PlainDumper
from autoscout.common.files import write_folder
from autoscout.common.text import plural, show_duration, show_gain, show_number
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.reference import References
from autoscout.core.secrecy import hide_secrets, without_secrets
from autoscout.core.task import Task

PLACES = ("{folder}", "{port}")
"""What stands in a variable for something that every launch has its own of."""


def hand_over(
    folder: Path,
    summary: Summary,
    files: Mapping[str, str],
    default_config: Config,
    *,
    knobs: Iterable[KnobNote] = (),
    variables: Mapping[str, str] | None = None,
    contributions: Sequence[Contribution] = (),
    baseline: Config | None = None,
    secrets: Sequence[str] = (),
    private: Sequence[str] = (),
) -> tuple[str, ...]:
    """Write the hand-over folder, whole or not at all.

    Args:
        folder: Where; an earlier one is replaced once the new one is complete.
        summary: The result of the study. Its `answer` is what is handed over: the best configuration after a gain that was shown or where
            the default breaks a limit, the default otherwise.
        files: What `backend.export(summary.answer, task)` gave.
        default_config: The engine's default.
        baseline: What the user runs today: the differences are counted from both.
        knobs: The space's knobs, for units and help.
        variables: Environment variables that the system needs with this configuration.
        contributions: What each changed knob of the best configuration contributes.
        secrets: Variables that hold a secret: they are named, and their values are not handed over.
        private: Texts that only the owner of the files may read.

    Returns:
        The relative paths written, sorted.

    Raises:
        ConfigError: nothing ran, so there is nothing to hand over.
        StoreError: the folder cannot be written.
    """
    if summary.answer is None:
        raise ConfigError(Fault(where=str(folder), rule=f"nothing to hand over: {summary.reason}"))
    references = References(default_config, baseline)
    content = _content(summary, summary.answer, files, references, tuple(knobs), variables or {}, contributions)
    if secrets:
        content["env"] = "".join(f"# {name}: a secret, set it yourself\n" for name in secrets) + content["env"]
    write_folder(folder, content, private)
    return tuple(sorted(content))


def _content(
    summary: Summary,
    answer: Config,
    files: Mapping[str, str],
    references: References,
    knobs: tuple[KnobNote, ...],
    variables: Mapping[str, str],
    contributions: Sequence[Contribution],
) -> dict[str, str]:
    titles = {name: config for config, name in references.titles.items()}
    changes = {name: differences(titles[name], answer, knobs) for name in sorted(titles, key=lambda name: name != summary.reference_name)}
    content = dict(files)
    # An engine's own config.yaml is what run.sh reads, so it keeps the name.
    settings = "knobs.yaml" if "config.yaml" in content else "config.yaml"
    content[settings] = _settings_text(summary, answer)
    content["env"] = environment_text(summary.task, variables, content.get("env", ""))
    content["diff.txt"] = hide_secrets(changes_text(changes, contributions))
    worth = [contribution.to_json() for contribution in contributions]
    content["gain.json"] = json.dumps(without_secrets({**gain_facts(summary), "contributions": worth}), indent=2, default=str) + "\n"
    names = sorted({*content, "README.md"})
    content.setdefault("README.md", hide_secrets(readme_text(summary, names, changes, contributions)))
    return content


def _settings_text(summary: Summary, answer: Config) -> str:
    head = f"# {summary.task.system}: {_what(summary)}, found by the study {_word(summary.study) or 'without a name'}\n"
    return head + yaml.dump(answer.to_json(), Dumper=PlainDumper, sort_keys=False, allow_unicode=True)


def _word(text: str) -> str:
    """Text on one line, for comments and headings of files that people run."""
    return " ".join(text.split())


def _what(summary: Summary) -> str:
    if not summary.hands_over_best:
        return "the baseline, which is what you run today" if summary.reference_name == "baseline" else "the default configuration"
    if summary.default is not None and summary.default.config == summary.answer:
        return "the engine's default in the place of your settings"
    words = {Verdict.GAIN: "the best configuration", Verdict.KEEPS: "a configuration that keeps the limits"}
    return words.get(summary.verdict, "the best configuration so far")


def gain_facts(summary: Summary) -> dict[str, object]:
    """What `gain.json` holds: the claim, its interval, and the trials it rests on."""
    objective = summary.task.objective
    return {
        "study": summary.study,
        "system": summary.task.system,
        "metric": objective.metric,
        "direction": objective.direction.value,
        "limits": [str(limit) for limit in objective.limits],
        "guards": [str(guard) for guard in objective.guards],
        "verdict": summary.verdict.value,
        "reason": summary.reason,
        "warnings": list(summary.warnings),
        "handed_over": "best" if summary.hands_over_best else summary.reference_name,
        "against": summary.reference_name,
        "gives_up": list(summary.gives_up),
        "next": summary.next.to_json() if summary.next else None,
        "fidelity": summary.fidelity.label,
        "gain": summary.gain.to_json(),
        "costs": [cost.to_json() for cost in summary.costs],
        "gain_over_default": summary.over_default.to_json() if summary.over_default else None,
        "baseline_gain": summary.baseline_gain.to_json() if summary.baseline_gain else None,
        "default": summary.default.to_json() if summary.default else None,
        "baseline": summary.baseline.to_json() if summary.baseline else None,
        "best": summary.best.to_json() if summary.best else None,
        "task_key": summary.task.key,
    }


def changes_text(changes: Mapping[str, tuple[Difference, ...]], contributions: Sequence[Contribution] = ()) -> str:
    """What the answer changes, from one reference or from both, the first with what each change contributes."""
    first, *others = changes
    if not others:
        return diff_text(changes[first], contributions)
    blocks = [f"From the {first}{_WHOSE[first]}:\n{diff_text(changes[first], contributions, first)}"]
    blocks += [f"From the {name}{_WHOSE[name]}:\n{diff_text(changes[name], (), name)}" for name in others]
    return "\n".join(blocks)


_WHOSE = {"baseline": ", which you run today", "default": " of the engine"}


def diff_text(changes: Iterable[Difference], contributions: Sequence[Contribution] = (), title: str = "default") -> str:
    """Knob by knob: before, answer, unit, what the change contributes and what the knob does."""
    worth_of: dict[str, list[str]] = {}
    for contribution in contributions:
        worth_of.setdefault(contribution.knob, []).append(contribution.words)
    rows = list(changes)
    if not rows:
        return f"No difference: this is the {title} configuration.\n"
    wide = max(len(change.knob) for change in rows)
    old = max(len(change.before) for change in rows)
    lines = []
    for change in rows:
        unit = f" {change.unit}" if change.unit else ""
        warning = f"WARNING: {_word(change.warning)}" if change.warning else ""
        words = "; ".join(filter(None, [warning, *worth_of.get(change.knob, ()), _word(change.help) if change.help else ""]))
        note = f"   # {words}" if words else ""
        lines.append(f"{change.knob:<{wide}}  {change.before:>{old}} -> {change.after}{unit}{note}")
    return "\n".join(lines) + "\n"


def environment_text(task: Task, variables: Mapping[str, str], own: str = "") -> str:
    """Variables to set, in the form that `docker --env-file` and systemd read; where it was measured, as comments.

    Args:
        task: What was measured, and where.
        variables: Of the launch.
        own: What the backend says of them itself, in their place.
    """
    lines = own.splitlines() if own else _variable_lines(variables)
    environment = without_secrets({"hardware": task.hardware, "software": task.software, "workload": task.workload})
    for title, facts in environment.items():
        lines += ["", f"# Measured with this {title}:"]
        lines += [f"#   {name}: {_word(str(value))}" for name, value in sorted(facts.items())] or ["#   (nothing recorded)"]
    return "\n".join(lines) + "\n"


def _variable_lines(variables: Mapping[str, str]) -> list[str]:
    lines = ["# Environment variables for this configuration:"]
    safe = {name: value for name, value in sorted(variables.items()) if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) and "\n" not in value}
    fixed = {name: value for name, value in safe.items() if not any(slot in value for slot in PLACES)}
    lines += [f"{name}={value}" for name, value in fixed.items()] or ["# (none)"]
    return [*lines, *(f"# {name}={value}: known only where it runs" for name, value in safe.items() if name not in fixed)]


def readme_text(
    summary: Summary, names: Iterable[str], changes: Mapping[str, tuple[Difference, ...]], contributions: Sequence[Contribution] = ()
) -> str:
    """What this folder is, what it is worth, and how to run it."""
    objective = summary.task.objective
    lines = [f"# {_word(summary.task.system)}: {_what(summary)}", "", f"**{_headline(summary)}**", ""]
    lines += [f"**{summary.price}**", ""] if summary.price and summary.verdict is not Verdict.KEEPS else []  # whose headline has it
    lines += [f"**gives up: {_word('; '.join(summary.gives_up))}**", ""] if summary.gives_up and summary.hands_over_best else []
    lines += [_word(f"{summary.next}"), ""] if summary.next else []
    if not summary.hands_over_best:
        lines += [f"No configuration was shown to be better, so this folder holds the {summary.reference_name}. It changes nothing.", ""]
    lines += [f"- objective: {goal.direction.value} `{goal.metric}`" for goal in objective.goals]
    lines += [f"- limit: `{show_limit(limit)}`" for limit in objective.limits]
    for title, side in summary.sides.items():
        if side is not None and side.value is not None:
            lines.append(f"- {title}: {show_number(side.value)} over {plural(side.runs, 'run')}")
    if summary.front:
        lines.append(f"- best by the first goal; other points of the front are in `../front/`: {summary.front.headline}")
    if summary.gain.enough:
        lines.append(f"- interval: {summary.gain.confidence:.0%}, {summary.gain.method}, {plural(summary.gain.pairs, 'pair')}")
    lines += [f"- {_word(summary.default_text)}"] if summary.default_text else []
    lines += [f"- {_word(summary.scope)}"] if summary.scope else []
    lines += [f"- note: {warning}" for warning in summary.warnings]
    lines.append(f"- study: {plural(summary.spent.trials, 'trial')}, {show_duration(summary.spent.wall_s)}")
    present = list(names)
    lines += ["", "## Run it", ""]
    scripts = [name for name in present if name.endswith(".sh")]
    lines += [f"    ./{name}" for name in (["run.sh"] if "run.sh" in scripts else scripts)] or ["    (no script was exported)"]
    if any(changes.values()):
        lines += ["", "## What it changes", "", *(f"    {line}".rstrip() for line in changes_text(changes, contributions).splitlines())]
    lines += ["", "## Files", "", *(f"- `{name}`: {_about(name, present)}" for name in present), ""]
    return "\n".join(lines)


_ABOUT = {
    "run.sh": "runs the system with this configuration",
    "run.sbatch": "submits run.sh to Slurm",
    "bench_run.sh": "measures it again, as the study did",
    "config.yaml": "the configuration, knob by knob",
    "knobs.yaml": "the configuration, knob by knob",
    "plan.json": "the measurement, for bench_run.sh",
    "compose.yaml": "the same server for Docker Compose",
    "k8s_deploy.yaml": "the same server for Kubernetes",
    "deploy/kserve.yaml": "the same server for KServe",
    "deploy/llmd_values.yaml": "the same server for llm-d: values of its chart",
    "deploy/dynamo.yaml": "the same engine for Dynamo",
    "deploy/ray_serve.yaml": "the same engine for Ray Serve LLM",
    "env": "environment variables, and the machine it was measured on",
    "diff.txt": "what differs from the default, and from the baseline where there is one",
    "gain.json": "the measured gain with its interval and the trials behind it",
    "README.md": "this page",
}


def _about(name: str, present: Collection[str]) -> str:
    if name == "config.yaml" and "knobs.yaml" in present:
        return "the engine's own settings, which run.sh reads"
    return _ABOUT.get(name, "another way to run it, as its comments say" if name.endswith(".sh") else "for the engine")


def _headline(summary: Summary) -> str:
    if summary.verdict is Verdict.GAIN and summary.gain.ratio is not None:
        gain = summary.gain
        over = summary.over_default
        both = f", {show_gain(over.ratio, over.low, over.high)} over the engine's default" if over and over.ratio is not None else ""
        return f"{show_gain(gain.ratio, gain.low, gain.high)} over {summary.reference_word}{both}: {summary.reason}"
    return summary.headline
