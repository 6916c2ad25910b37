"""Write the table of an engine's flags from its unpacked wheel. Nothing of the engine is imported: its source is read by `ast`.

    pip download --no-deps vllm==0.24.0 && unzip -q vllm-0.24.0-*.whl -d unpacked
    python scripts/knob_tables.py vllm unpacked [--check]

The table goes to src/autoscout/backends/ENGINE/tables/VERSION.yaml; with --check it is compared with what is there instead.
What people know about flags (useful values, conditions, what a flag trades) is in knobs.yaml next to the tables and is not touched.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BACKENDS = Path(__file__).resolve().parents[1] / "src" / "autoscout" / "backends"
UNKNOWN = object()
MOST_CHOICES = 60


class Source:
    """The modules of a package, parsed; names are looked up in the whole package, the module that asks first."""

    def __init__(self, files: list[Path]) -> None:
        self.trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in files}
        self.classes: dict[str, ast.ClassDef] = {}
        self.names: dict[str, ast.expr] = {}
        for tree in self.trees.values():
            for node in tree.body:
                if isinstance(node, ast.ClassDef):
                    self.classes.setdefault(node.name, node)
                elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    self.names.setdefault(node.targets[0].id, node.value)
                elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                    self.names.setdefault(node.target.id, node.value)

    def fields(self, name: str) -> dict[str, ast.AnnAssign]:
        """Annotated fields of a class, those of its bases first."""
        node = self.classes[name]
        found: dict[str, ast.AnnAssign] = {}
        for base in node.bases:
            if isinstance(base, ast.Name) and base.id in self.classes:
                found |= self.fields(base.id)
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                found[item.target.id] = item
        return found

    def value(self, node: ast.expr | None) -> Any:
        """A constant, list or enum member as plain data; UNKNOWN where it is computed."""
        if node is None:
            return UNKNOWN
        try:
            return ast.literal_eval(node)
        except (ValueError, SyntaxError):
            pass
        if isinstance(node, ast.Name):
            return self.value(self.names.get(node.id))
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            found = [self.value(item) for item in node.elts]
            return UNKNOWN if UNKNOWN in found else found
        if isinstance(node, ast.Call):
            keywords = {word.arg: word.value for word in node.keywords}
            called = ast.unparse(node.func)
            if called in ("Field", "field"):
                first = node.args[0] if node.args else None
                return self.value(keywords.get("default", first))
            if called in ("set", "list", "sorted", "frozenset") and node.args:
                return self.value(node.args[0])
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in self.classes:
            return self._member(self.classes[node.value.id], node.attr)
        return UNKNOWN

    def _member(self, node: ast.ClassDef, name: str) -> Any:
        """A member of an enum by its value where that is a number, else by its name; a field's default of another class."""
        enum = any("Enum" in ast.unparse(base) for base in node.bases)
        for item in node.body:
            if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name) and item.targets[0].id == name:
                found = self.value(item.value)
                return found if isinstance(found, (int, float)) or not enum else name
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.target.id == name:
                return self.value(item.value)
        return UNKNOWN

    def hints(self, node: ast.expr) -> Iterator[ast.expr]:
        """The parts of a union, aliases resolved."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            yield from self.hints(node.left)
            yield from self.hints(node.right)
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("Optional", "Union"):
            inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            for item in inner:
                yield from self.hints(item)
            if ast.unparse(node.value) == "Optional":
                yield ast.Constant(None)
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("SkipValidation", "Annotated", "A"):
            yield from self.hints(node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice)
        elif isinstance(node, ast.Name) and node.id in self.names and isinstance(self.names[node.id], (ast.Subscript, ast.BinOp)):
            yield from self.hints(self.names[node.id])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from self.hints(ast.parse(node.value, mode="eval").body)
        else:
            yield node

    def literals(self, node: ast.expr) -> list[Any]:
        """The values of a Literal, nested ones included."""
        found: list[Any] = []
        inner = node.slice.elts if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) else [node.slice]  # type: ignore[attr-defined]
        for item in inner:
            if isinstance(item, ast.Name) and item.id in self.names:
                found += self.literals(self.names[item.id])
            else:
                found.append(ast.literal_eval(item))
        return found

    def kind(self, annotation: ast.expr) -> dict[str, Any]:
        """How a value of this type is written: `type`, and `choices` where they are listed."""
        words, choices = [], []
        members: list[str] = []
        keys: list[str] = []
        for part in self.hints(annotation):
            text = ast.unparse(part)
            if isinstance(part, ast.Subscript) and text.startswith("Literal["):
                choices += self.literals(part)
            elif part.__class__ is ast.Name and part.id in self.classes:
                node = self.classes[part.id]
                if any("Enum" in ast.unparse(base) for base in node.bases):
                    words.append("str" if not any("Int" in ast.unparse(base) for base in node.bases) else "int")
                    assigned = [item.targets[0] for item in node.body if isinstance(item, ast.Assign)]
                    members += [target.id for target in assigned if isinstance(target, ast.Name)]
                else:
                    words.append("json")
                    keys += self.keys(part.id)
            else:
                words.append(text.split("[")[0])
        plain = [word for word in words if word != "None"]
        if "bool" in plain:
            return {"type": "str" if "str" in plain else "bool"}
        if choices and not plain:
            return {"type": "choice", "choices": choices}
        if choices:
            return {"type": "str", "choices": choices} if len(choices) <= MOST_CHOICES else {"type": "str"}
        for word, name in (("list", "list"), ("List", "list"), ("set", "list"), ("tuple", "list"), ("dict", "json"), ("Dict", "json")):
            if word in plain:
                return {"type": name}
        for word in ("json", "int", "float"):
            if word in plain:
                return {"type": word, **({"keys": keys} if keys and word == "json" else {})}
        return {"type": "str", **({"choices": members} if 0 < len(members) <= MOST_CHOICES else {})}

    def keys(self, name: str, *, deep: bool = True) -> list[str]:
        """The settings inside a class of settings, those of its inner classes behind a dot; without what the engine fills in itself."""
        found: list[str] = []
        for field, item in self.fields(name).items():
            text = ast.unparse(item.annotation) + (ast.unparse(item.value) if item.value is not None else "")
            if field.startswith("_") or text.startswith(("SkipValidation", "ClassVar")) or "init=False" in text:
                continue
            inner = [part.id for part in self.hints(item.annotation) if isinstance(part, ast.Name) and part.id in self.classes]
            nested = [f"{field}.{key}" for inside in inner if deep and not self._is_enum(inside) for key in self.keys(inside, deep=False)]
            found += nested or [field]
        return found

    def _is_enum(self, name: str) -> bool:
        return any("Enum" in ast.unparse(base) for base in self.classes[name].bases)


def plain(value: Any) -> Any:
    """A default as a table keeps it; nothing for one that the engine computes."""
    return None if value is UNKNOWN or isinstance(value, (dict, set)) else value


def vllm_flags(root: Path) -> dict[str, dict[str, Any]]:
    """Flags of `vllm serve`: those of the engine, of the API server, and of the command itself."""
    package = root / "vllm"
    servers = [path for path in sorted((package / "entrypoints").rglob("*.py")) if "class FrontendArgs" in path.read_text(encoding="utf-8")]
    known = [package / "engine" / "arg_utils.py", *servers]
    extra = [package / "v1" / "attention" / "backends" / "registry.py"]
    source = Source([*known, *sorted((package / "config").glob("*.py")), *(path for path in extra if path.exists())])
    found: dict[str, dict[str, Any]] = {}
    functions = [
        node
        for path in known
        for node in ast.walk(source.trees[path])
        if isinstance(node, ast.FunctionDef) and node.name in ("add_cli_args", "make_arg_parser")
    ]
    for function in functions:
        owners = {
            node.targets[0].id: ast.unparse(node.value.args[0])
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Call)
            and ast.unparse(node.value.func) == "get_kwargs"
        }
        aliases = {
            node.targets[0].id: node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Subscript)
        }
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
                row = _argument(source, node, owners, aliases)
                if row:
                    found[row.pop("name")] = row
    for name, field in source.fields("FrontendArgs").items():
        row = {"flag": "--" + name.replace("_", "-"), **source.kind(field.annotation), "default": plain(source.value(field.value))}
        found.setdefault(name, row)
    return found


def _argument(source: Source, call: ast.Call, owners: dict[str, str], aliases: dict[str, ast.Subscript]) -> dict[str, Any]:
    """One `add_argument` as a row; empty for positional ones and for those in a loop.

    Args:
        source: The parsed package.
        call: The call.
        owners: Variable -> the class whose settings it holds.
        aliases: Variable -> one setting of such a variable.
    """
    names = [word.value for word in call.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
    flag = next((name for name in names if name.startswith("--")), "")
    if not flag:
        return {}
    row: dict[str, Any] = {"name": flag[2:].replace("-", "_"), "flag": flag, "type": "str", "default": None}
    if others := [name for name in names if name != flag]:
        row["aliases"] = others
    keywords = {word.arg: word.value for word in call.keywords if word.arg}
    stars = [word.value for word in call.keywords if word.arg is None]
    for star in stars:
        # `**kwargs["field"]`, or `**{**kwargs["field"], "default": None}`
        inner = [value for key, value in zip(star.keys, star.values, strict=True) if key is None] if isinstance(star, ast.Dict) else [star]
        for part in (aliases.get(item.id, item) if isinstance(item, ast.Name) else item for item in inner):
            if isinstance(part, ast.Subscript) and ast.unparse(part.value) in owners and isinstance(part.slice, ast.Constant):
                field = source.fields(owners[ast.unparse(part.value)]).get(str(part.slice.value))
                if field is not None:
                    row |= {**source.kind(field.annotation), "default": plain(source.value(field.value))}
        if isinstance(star, ast.Dict):
            for key, value in zip(star.keys, star.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "default":
                    row["default"] = plain(source.value(value))
    if "action" in keywords:
        action = ast.unparse(keywords["action"])
        row["type"] = (
            "switch" if "store_true" in action or "StoreTrue" in action else "bool" if "BooleanOptional" in action else row["type"]
        )
    elif "type" in keywords and ast.unparse(keywords["type"]) in ("int", "float"):
        row["type"] = ast.unparse(keywords["type"])
    if "default" in keywords:
        row["default"] = plain(source.value(keywords["default"]))
    return row


def sglang_flags(root: Path) -> dict[str, dict[str, Any]]:
    """Flags of `python -m sglang.launch_server`: the annotated fields of its namespaces."""
    groups = root / "sglang" / "srt" / "arg_groups"
    source = Source([*sorted((groups / "fields").glob("*.py")), groups / "choices.py"])
    found: dict[str, dict[str, Any]] = {}
    for path in sorted((groups / "fields").glob("*.py")):
        for item in ast.walk(source.trees[path]):
            if not (isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and isinstance(item.annotation, ast.Subscript)):
                continue
            if ast.unparse(item.annotation.value) == "A" and (row := _annotated(source, item)):
                found[item.target.id] = row
    by_hand = root / "sglang" / "srt" / "server_args.py"
    server = Source([*source.trees, *([by_hand] if by_hand.exists() else [])])
    for function in ast.walk(server.trees[by_hand]) if by_hand.exists() else ():
        for node in ast.walk(function) if isinstance(function, ast.FunctionDef) and function.name == "add_cli_args" else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "parser.add_argument" and (row := _argument(server, node, {}, {})):
                found.setdefault(row.pop("name"), row)
    return found


def _annotated(source: Source, item: ast.AnnAssign) -> dict[str, Any]:
    """One field `A[type, Arg(...)]` or `A[type, "help"]` as a row; empty for one without a flag."""
    assert isinstance(item.annotation, ast.Subscript)
    assert isinstance(item.target, ast.Name)
    inner, *notes = item.annotation.slice.elts  # type: ignore[attr-defined]
    argument = next((note for note in notes if isinstance(note, ast.Call) and ast.unparse(note.func) == "Arg"), None)
    if argument is None and not any(isinstance(note, (ast.Constant, ast.BinOp, ast.JoinedStr)) for note in notes):
        return {}
    keywords = {word.arg: word.value for word in argument.keywords} if argument is not None else {}
    if source.value(keywords.get("no_cli")) is True:
        return {}
    flag = source.value(keywords.get("cli_name"))
    row = {"flag": flag if isinstance(flag, str) else "--" + item.target.id.replace("_", "-"), **source.kind(inner)}
    if row["type"] == "bool":
        row["type"] = "bool" if "BooleanOptional" in ast.unparse(keywords.get("action", ast.Constant(""))) else "switch"
    choices = source.value(keywords.get("choices"))
    if isinstance(choices, list) and len(choices) <= MOST_CHOICES:
        row |= {"type": "choice", "choices": choices}
    others = source.value(keywords.get("aliases"))
    return {**row, "default": plain(source.value(item.value)), **({"aliases": others} if isinstance(others, list) else {})}


MEGATRON_FILES = (
    "model_parallel_config.py",
    "transformer/transformer_config.py",
    "transformer/enums.py",
    "distributed/distributed_data_parallel_config.py",
    "optimizer/optimizer_config.py",
    "num_microbatches_calculator.py",
    "enums.py",
)
MEGATRON_CLASSES = ("TransformerConfig", "DistributedDataParallelConfig", "OptimizerConfig")
MEGATRON_BATCH = "init_num_microbatches_calculator"
MEGATRON_NAMES = {
    "add_bias_linear": "--disable-bias-linear",
    "average_in_collective": "--ddp-average-in-collective",
    "bucket_size": "--ddp-bucket-size",
    "fp8": "--fp8-format",
    "gated_linear_unit": "--swiglu",
    "num_moe_experts": "--num-experts",
    "pad_buckets_for_high_nccl_busbw": "--ddp-pad-buckets-for-high-nccl-busbw",
    "virtual_pipeline_model_parallel_size": "--num-virtual-stages-per-pipeline-rank",
}
"""Flags of Megatron-LM's `arguments.py` that are not named after the setting they fill."""


def megatron_flags(root: Path) -> dict[str, dict[str, Any]]:
    """Settings of megatron-core: the fields of its configuration classes, and what its count of micro-batches takes."""
    core = root / "megatron" / "core"
    source = Source([core / name for name in MEGATRON_FILES])
    found: dict[str, dict[str, Any]] = {}
    for owner in MEGATRON_CLASSES:
        for name, field in source.fields(owner).items():
            known = found.setdefault(name, _setting(source, name, field.annotation, field.value))
            known["of"] = [*known.get("of", []), owner]
    (function,) = (
        node
        for node in ast.walk(source.trees[core / "num_microbatches_calculator.py"])
        if isinstance(node, ast.FunctionDef) and node.name == MEGATRON_BATCH
    )
    for argument in function.args.args:
        if argument.annotation is not None and argument.arg != "rank":
            found[argument.arg] = {**_setting(source, argument.arg, argument.annotation, None), "of": [MEGATRON_BATCH]}
    return found


def _setting(source: Source, name: str, annotation: ast.expr, value: ast.expr | None) -> dict[str, Any]:
    kind, default = source.kind(annotation), plain(source.value(value))
    if kind["type"] == "bool" and default is False:
        kind["type"] = "switch"  # Megatron-LM has a flag for the other value only
    return {"flag": MEGATRON_NAMES.get(name, "--" + name.replace("_", "-")), **kind, "default": default}


READERS = {"vllm": vllm_flags, "sglang": sglang_flags, "megatron": megatron_flags}


def version(root: Path) -> str:
    """The version in the metadata of the unpacked wheel."""
    (metadata,) = root.glob("*.dist-info/METADATA")
    return next(line.split(":", 1)[1].strip() for line in metadata.read_text().splitlines() if line.startswith("Version:"))


def text(engine: str, number: str, flags: dict[str, dict[str, Any]]) -> str:
    """The table as a file: YAML with one flag a line, written as JSON so that no value is read as another type."""
    lines = [f"  {name}: {json.dumps(row)}" for name, row in sorted(flags.items())]
    head = f"# Written by scripts/knob_tables.py from the wheel of {engine} {number}; do not edit. Computed defaults are null.\n"
    return f"{head}engine: {engine}\nversion: {number}\nflags:\n" + "\n".join(lines) + "\n"


def main() -> int:
    """Write one table, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=READERS)
    parser.add_argument("unpacked", type=Path)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    flags, number = READERS[given.engine](given.unpacked), version(given.unpacked)
    path = BACKENDS / given.engine / "tables" / f"{number}.yaml"
    made = text(given.engine, number, flags)
    if given.check:
        same = path.exists() and path.read_text(encoding="utf-8") == made
        print(f"{path.name}: {len(flags)} flags, {'as in the wheel' if same else 'NOT as in the wheel: run without --check'}")
        return 0 if same else 1
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(made, encoding="utf-8")
    print(f"{path.name}: {len(flags)} flags")
    return 0


if __name__ == "__main__":
    sys.exit(main())
