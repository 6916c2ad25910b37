"""What people run today: a `llama-server` command, or a file that holds one, as workload and knobs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autoscout.backends.llamacpp.flags import LOOKUPS, SWITCHES, VALUES
from autoscout.backends.llamacpp.gguf_file import GgufError, GgufFacts, GgufFile
from autoscout.backends.llamacpp.program import ProgramFlag, ask, find, is_server
from autoscout.commands.containers import containers_in, yaml_documents
from autoscout.commands.script import ScriptError, missing_in, read_script
from autoscout.commands.secrets import left_out
from autoscout.core.config import Value
from autoscout.core.errors import ConfigError, Fault, NoLaunchError
from autoscout.core.secrecy import is_secret
from autoscout.core.user import UserLaunch
from autoscout.engines.table import plain

SHORT = {
    "-m": "--model", "-c": "--ctx-size", "-t": "--threads", "-tb": "--threads-batch", "-b": "--batch-size", "-ub": "--ubatch-size",
    "-np": "--parallel", "-fa": "--flash-attn", "-ctk": "--cache-type-k", "-ctv": "--cache-type-v", "-ngl": "--n-gpu-layers",
    "--gpu-layers": "--n-gpu-layers", "-sm": "--split-mode", "-ts": "--tensor-split", "-mg": "--main-gpu", "-ot": "--override-tensor",
    "-ncmoe": "--n-cpu-moe", "-cmoe": "--cpu-moe", "-ncffn": "--n-cpu-ffn", "-cram": "--cache-ram", "-ctxcp": "--ctx-checkpoints",
    "-sps": "--slot-prompt-similarity", "-md": "--spec-draft-model", "-cb": "--cont-batching", "-nocb": "--no-cont-batching",
    "-kvu": "--kv-unified", "-no-kvu": "--no-kv-unified", "-nkvo": "--no-kv-offload", "-nr": "--no-repack", "-a": "--alias",
    "-hf": "--hf-repo", "-hfr": "--hf-repo", "-hff": "--hf-file", "-v": "--verbose", "-lv": "--verbosity", "-fit": "--fit",
    "--model-draft": "--spec-draft-model", "--draft-max": "--spec-draft-n-max", "--draft-min": "--spec-draft-n-min",
    "--draft": "--spec-draft-n-max", "--draft-p-min": "--spec-draft-p-min", "--swa-checkpoints": "--ctx-checkpoints",
}  # fmt: skip
"""Other spellings of the flags that mean something here, for a program that cannot be asked."""
NO_MATTER = ("--host", "--port", "--alias", "--api-key", "--api-key-file", "--verbose", "--verbosity", "--metrics", "--slots", "--webui",
             "--ui", "--path", "--timeout", "--slot-save-path", "--props", "--offline", "--log-verbosity")  # fmt: skip
"""Flags that change no speed, or that every trial has its own of."""
LOADING = {"--mlock": "mlock", "--no-mmap": "none", "--mmap": "mmap"}
"""Former flags of the way in which a file is loaded."""
IMAGE = re.compile(r"llama\.cpp[:/@]|llama\.cpp$")
STARTERS = ("exec", "nohup", "sudo", "env", "time", "command")
CONTAINERS = ("docker", "podman", "nerdctl", "kubectl")
"""Words before a command that a trial does without."""
SWITCH_OF = {word: (setting, word == on) for setting, (on, off) in SWITCHES.items() for word in (on, off) if word}
SETTING_OF = {flag: setting for setting, flags in VALUES.items() for flag in flags}
USUAL = {*SETTING_OF, *SWITCH_OF, *NO_MATTER, "--ctx-size", "--model", "--hf-repo"}
ALL_LAYERS = 99  # what people write for "all of them"
WHOLE = ("threads", "threads_batch", "poll", "batch", "ubatch", "parallel", "main_gpu", "n_cpu_moe", "n_cpu_ffn", "moe_cache_mib",
         "cache_reuse", "cache_ram", "ctx_checkpoints", "draft_max", "draft_min")  # fmt: skip
FRACTION = ("slot_prompt_similarity", "draft_p_min")


def read_launch(text: str, name: str) -> UserLaunch:
    """The launch in a command line, or in the text of a script, unit, Compose file or manifest.

    Raises:
        ConfigError: there is no such command in it, or it is not understood; all faults at once.
    """
    notes: list[str] = []
    words = command_in(text, name, notes)
    if words is None:
        rule, fix = "holds no llama-server command", "Give the command, such as 'llama-server -m model.gguf -ngl 99', or a file with it"
        raise NoLaunchError(Fault(where=name, rule=rule, fix=fix))
    reader = _Reader(name, left_out=notes)
    reader.read(words)
    if reader.faults:
        raise ConfigError(reader.faults)
    return reader.launch()


def command_in(text: str, name: str = "", notes: list[str] | None = None) -> list[str] | None:
    """The words of the first llama-server command; None where there is none. What follows it without belonging to it goes into `notes`."""
    candidates = _candidates(text, name)
    command = next((words for words in candidates if any(is_server(word) or IMAGE.search(word) for word in words)), None)
    after = next(candidates, [])
    stray = next((word for word in after if not re.match(r"[A-Za-z_]\w*=", word)), "")
    if command and notes is not None and stray.startswith("-"):
        notes.append(f"{stray} begins a command of its own and is not read: the line before it does not end with a backslash.")
    return command


def _candidates(text: str, name: str) -> Iterator[list[str]]:
    """Commands with their variables as words before them; of a container after the image that they are given to."""
    if documents := yaml_documents(text, name):
        for container in containers_in(documents):
            image = [container.image] if IMAGE.search(container.image) else []
            yield [*_variables(container.env), *image, *map(str, container.words)]
            yield from _scripted(container.words[-1] if container.words else "")
        return
    yield from _scripted(re.sub(r"^\s*ExecStart=[-@:+!]*", "", text, flags=re.MULTILINE))


def _scripted(text: str) -> Iterator[list[str]]:
    try:
        commands = read_script(text).commands
    except ScriptError:
        return
    for command in commands:
        script = next((word for word in command.words[1:] if re.search(r"llama-?server\S*\s", word)), None)
        if script and not is_server(command.words[0]):  # for `tmux`, `ssh` or `sh -c`
            yield from _scripted(script)
        else:
            yield [*_variables(command.env), *command.words]


def _variables(env: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in env.items() if not missing_in(value)]


@dataclass
class _Reader:
    """Takes in the words of a command; what they mean is collected."""

    name: str
    workload: dict[str, Any] = field(default_factory=dict)
    knobs: dict[str, Value] = field(default_factory=dict)
    hardware: dict[str, Any] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    passed: dict[str, Any] = field(default_factory=dict)
    context: int | None = None
    lookups: dict[str, str] = field(default_factory=dict)
    repository: dict[str, str] = field(default_factory=dict)

    def read(self, words: Sequence[str]) -> None:
        place = next(place for place, word in enumerate(words) if is_server(word) or IMAGE.search(word))
        before = [word for word in words[:place] if word not in STARTERS]
        assignments = [word for word in before if re.match(r"[A-Za-z_]\w*=", word)]
        env = dict(word.split("=", 1) for word in assignments)
        secret = [name for name, value in env.items() if is_secret(name, value)]
        self.env = {name: str(value) for name, value in env.items() if name not in secret}
        if secret:
            self.left_out.append(left_out(secret))
        wrapper = [word for word in before if word not in assignments]
        if (wrapper and Path(wrapper[0]).name in CONTAINERS) or (IMAGE.search(words[place]) and not is_server(words[place])):
            what = "" if is_server(words[place]) else f" image {words[place]}"
            self.left_out.append(f"The container{what} is not started: this machine's llama.cpp is measured.")
            command: tuple[str, ...] = ()
        else:
            command = (*wrapper, words[place])
        if command and find(command) == "" and "/" not in words[place]:
            self.left_out.append(f"There is no {words[place]} on the PATH here: the llama.cpp of this machine is measured.")
            command = ()
        server = ask(command) if command and find(command) else None
        if command:
            self.workload["server"] = list(map(str, command))
        flags = server.flags if server else {}
        variables = {flag.env: flag for flag in flags.values() if flag.env}
        for variable in [name for name in self.env if name in variables]:
            names = variables[variable].names
            self._flag(names[-1 if variables[variable].takes_value else 0], self.env.pop(variable))
        if gpus := self.env.get("CUDA_VISIBLE_DEVICES"):
            self.hardware["gpus"] = len(gpus.split(","))
        self._flags(list(words[place + 1 :]), flags)
        self._settle()

    def _flags(self, words: list[str], flags: Mapping[str, ProgramFlag]) -> None:
        while words:
            whole = words.pop(0)
            word, equals, attached = whole.partition("=") if whole.startswith("--") else (whole, "", "")
            if not word.startswith("-"):
                self.faults.append(Fault(where=self.name, value=repr(word), rule="is neither a flag of llama-server nor the value of one"))
                continue
            entry = flags.get(word)
            if flags and entry is None and word not in SHORT and word not in LOADING:
                self.faults.append(Fault(where=self.name, value=repr(word), rule="this llama-server has no such flag"))
            takes = entry.takes_value if entry else word not in LOADING and SHORT.get(word, word) not in SWITCH_OF
            follows = words and (not words[0].startswith("-") or re.fullmatch(r"-\d+(\.\d+)?", words[0]))
            value = attached if equals else words.pop(0) if takes and follows else ""
            if names := missing_in(whole) or missing_in(value):
                self.left_out.append(f"{word} is not read: {' and '.join(names)} is known only where it runs.")
            else:
                self._flag(self._canonical(word, entry), str(value))

    @staticmethod
    def _canonical(word: str, entry: ProgramFlag | None) -> str:
        """The spelling that the tables here use."""
        names = entry.names if entry else ()
        first = next((place for place, name in enumerate(names) if name.startswith("--")), 0)
        if entry and entry.off and (word.startswith("--no-") or (not word.startswith("--") and names.index(word) > first)):
            return entry.off
        spellings = [SHORT.get(name, name) for name in (word, *(name for name in names if not name.startswith("--no-")))]
        usual = [name for name in spellings if name in USUAL]
        return (usual or [name for name in spellings if name.startswith("--")] or spellings)[0]

    def _flag(self, flag: str, value: str) -> None:
        """Take in one flag with its value; empty for none."""
        if flag == "--model":
            self.workload["model"] = value
        elif flag in ("--hf-repo", "--hf-file"):
            self.repository[flag] = value
        elif flag == "--ctx-size":
            self.context = self._number(flag, value, int)
        elif flag == "--spec-draft-model":
            self.workload["draft_model"] = value
        elif flag in NO_MATTER or flag.startswith(("--log", "--no-log", "--no-webui", "--no-ui")):
            self.left_out.append(f"{flag} changes no speed: every trial has its own.")
        elif flag in SWITCH_OF:
            setting, on = SWITCH_OF[flag]
            self.knobs[setting] = on != (value in ("0", "off", "false"))
        elif flag in LOADING:
            self.knobs["load_mode"] = LOADING[flag]
        elif any(flag in pair for pair in LOOKUPS.values()):
            self.lookups[flag] = value
        elif flag in SETTING_OF:
            self._setting(SETTING_OF[flag], flag, value)
        else:
            self.passed[plain(flag)] = value if value else True

    def _setting(self, setting: str, flag: str, value: str) -> None:
        if setting == "flash_attention":
            self.knobs[setting] = {"": "on", "1": "on", "0": "off", "-1": "auto"}.get(value, value)
        elif setting == "spec_type" and "," in value:
            self.passed["spec_type"] = value
        elif setting in WHOLE or setting in FRACTION:
            number = self._number(flag, value, int if setting in WHOLE else float)
            if number is not None and not (setting in ("threads", "threads_batch", "parallel") and number < 1):
                self.knobs[setting] = number
        else:
            self.knobs[setting] = value

    def _number(self, flag: str, value: str, kind: type[int] | type[float]) -> Any:
        try:
            return kind(value)
        except ValueError:
            self.faults.append(Fault(where=self.name, field=flag, value=repr(value), rule="must be a number"))
            return None

    def _settle(self) -> None:
        """What follows from several flags together, and from the model."""
        if self.repository and "model" not in self.workload:
            self._downloaded()
        if "model" not in self.workload and not self.faults:
            rule, fix = "names no model", "Add -m FILE.gguf: AutoScout reads the header of the file"
            self.faults.append(Fault(where=self.name, rule=rule, fix=fix))
        facts = self._facts()
        if "threads" in self.knobs:
            self.knobs.setdefault("threads_batch", self.knobs["threads"])
        slots = self.knobs.get("parallel")
        if isinstance(slots, int):
            self.knobs = {**self.knobs, "kv_unified": self.knobs.get("kv_unified", False)} if slots > 1 else self.knobs
        count = slots if isinstance(slots, int) else 4
        if self.context:
            self.workload["context"] = math.ceil(self.context / count)
            if facts is None or facts.context >= self.workload["context"] * 4:
                self.knobs["context_size"] = "load"
        layers = self.knobs.get("gpu_layers")
        if isinstance(layers, str) and re.fullmatch(r"-?\d+", layers):
            number, most = int(layers), facts.layers if facts else ALL_LAYERS - 1
            self.knobs["gpu_layers"] = "auto" if number == -1 else "all" if number > most or number < 0 else number
        kind = str(self.knobs.get("spec_type", ""))
        for flag, value in self.lookups.items():
            pair = LOOKUPS.get(kind, ())
            if flag in pair and value.isdigit():
                self.knobs[("ngram_max", "ngram_match")[pair.index(flag)]] = int(value)
            else:
                self.passed[plain(flag)] = value

    def _facts(self) -> GgufFacts | None:
        try:
            return GgufFile(Path(str(self.workload.get("model", ""))).expanduser()).facts
        except GgufError:
            return None  # whoever reads the workload says so

    def _downloaded(self) -> None:
        """The file of a Hugging Face repository in the caches of llama.cpp and of Hugging Face."""
        repository, _, quant = self.repository.get("--hf-repo", "").partition(":")
        part = self.repository.get("--hf-file") or quant or "Q4_K_M"
        caches = Path("~/.cache").expanduser()
        files = [
            *caches.glob(f"huggingface/hub/models--{repository.replace('/', '--')}/snapshots/*/*.gguf"),
            *caches.glob(f"llama.cpp/{repository.replace('/', '_')}*.gguf"),
        ]
        matches = [path for path in files if part.lower() in path.name.lower()]
        if matches:
            self.workload["model"] = str(sorted(matches)[0])
            return
        rule, fix = (
            "the model is not on this machine yet",
            f"Start llama-server -hf {repository} once, or download the file and give -m FILE",
        )
        self.faults.append(Fault(where=self.name, field="--hf-repo", value=repr(repository), rule=rule, fix=fix))

    def launch(self) -> UserLaunch:
        more = {**({"engine_args": self.passed} if self.passed else {}), **({"env": self.env} if self.env else {})}
        return UserLaunch(workload={**self.workload, **more}, hardware=self.hardware, knobs=self.knobs, left_out=tuple(self.left_out))


__all__ = ["command_in", "read_launch"]
