"""Files for the places where servers are deployed: read as those places read them, and compared with recorded ones."""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from engine_deployments import DEPLOYMENTS, ENGINES, Documented, command_line, files

from autoscout.backends.vllm import VllmBackend
from autoscout.catalog.models import accepted_names, hub_path, model

GOLDEN = Path(__file__).parents[2] / "golden" / "engines" / "deploy"
PLACES = (
    "run.sh",
    "compose.yaml",
    "k8s_deploy.yaml",
    *(f"deploy/{name}.yaml" for name in ("kserve", "llmd_values", "dynamo", "ray_serve")),
)
NOWHERE = ("sglang", "deploy/ray_serve.yaml")
"""Ray Serve LLM runs vLLM."""
SHORT = Documented("short name", "llama-3.1-8b", "1xH100")
UNKNOWN = Documented("unknown name", "my-own", "1xH100")
ODD = Documented("odd signs", "org/a$(HOME)$$b", "1xH100", workload={"env": {"SALT": "$(PATH) $$ {{ .Values }}"}})
TWO = next(this for this in DEPLOYMENTS if this.name == "llama-405b, two machines")
ALONE = [this for this in DEPLOYMENTS if int(this.gpus.split("x")[0]) <= 8]
GIB_8B = 15  # of weights of 8 billion parameters with two bytes each


def documents(engine: str, this: Documented, name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(files(engine, this)[name]))


def pods(engine: str, this: Documented) -> dict[str, dict[str, Any]]:
    """What starts the engine, as a pod, by file."""
    worker = documents(engine, this, "deploy/dynamo.yaml")[0]["spec"]["services"]["Worker"]
    main, cache = worker["extraPodSpec"]["mainContainer"], worker["volumeMounts"][0]
    return {
        "k8s_deploy.yaml": documents(engine, this, "k8s_deploy.yaml")[0]["spec"]["template"]["spec"],
        "deploy/kserve.yaml": documents(engine, this, "deploy/kserve.yaml")[0]["spec"]["predictor"],
        "deploy/llmd_values.yaml": documents(engine, this, "deploy/llmd_values.yaml")[0]["decode"],
        "deploy/dynamo.yaml": {
            "containers": [{**main, "resources": worker["resources"]}],
            "volumes": [
                {"name": cache["name"], "persistentVolumeClaim": {"claimName": cache["name"]}},
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": worker["sharedMemory"]["size"]}},
            ],
        },
    }


def expanded(text: str, variables: dict[str, str]) -> str:
    """What Kubernetes makes of a word: two signs are one, a variable that is set is replaced."""
    return re.sub(r"\$\$|\$\((\w+)\)", lambda hit: "$" if hit[0] == "$$" else variables.get(hit[1], hit[0]), text)


def changes(first: str, text: str) -> str:
    """The lines of a file that the first one does not have, and the other way round."""
    lines = difflib.unified_diff(first.splitlines(), text.splitlines(), n=0, lineterm="")
    return "".join(f"{line}\n" for line in lines if not line.startswith(("---", "+++", "@@")))


@pytest.mark.parametrize(("engine", "place"), [(engine, place) for engine in ENGINES for place in PLACES if (engine, place) != NOWHERE])
def test_twenty_hand_overs_change_only_on_purpose(engine: str, place: str, check_recorded: Callable[[Path, str], None]) -> None:
    """The first is recorded whole, the others by what is different in them."""
    first = files(engine, DEPLOYMENTS[0])[place]
    told = f"##### {DEPLOYMENTS[0].name}\n{first}"
    for this in DEPLOYMENTS[1:]:
        text = files(engine, this).get(place)
        told += f"\n##### {this.name}\n" + ("no such file\n" if text is None else changes(first, text))
    check_recorded(GOLDEN / f"{engine}-{Path(place).stem}.txt", told)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("this", ALONE, ids=lambda this: this.name)
def test_every_place_starts_what_was_measured(engine: str, this: Documented) -> None:
    measured = command_line(engine, this)
    flags = measured[measured.index(this.model) + 1 : measured.index("--host")]
    told = [word for word in flags if word != "--enable-metrics"]
    for file, pod in pods(engine, this).items():
        container = pod["containers"][0]
        args = [expanded(word, {}) for word in container["args"]]
        assert args[args.index(this.model) + 1 :][: len(told)] == told, file
        gpus = container["resources"]["limits"]
        assert 1 <= int(gpus.get("nvidia.com/gpu") or gpus["gpu"]) <= int(this.gpus.split("x")[0]), file
        assert re.fullmatch(r"\d+Gi", container["resources"]["requests"]["memory"]), file
        assert any(volume.get("persistentVolumeClaim") == {"claimName": "llm-cache"} for volume in pod["volumes"]), file
        shm = next(volume["emptyDir"] for volume in pod["volumes"] if volume["name"] == "shm")
        assert re.fullmatch(r"\d+Gi", shm["sizeLimit"]), file
        assert shm["medium"] == "Memory", file
        assert "<" not in json.dumps(pod), "every place of a template is filled"


@pytest.mark.parametrize("engine", ENGINES)
def test_kubernetes_knows_every_field(engine: str) -> None:
    """By its published schema; resources of operators are below."""
    validate: Any = pytest.importorskip("kubernetes_validate", reason="the schema of Kubernetes is not installed")
    items = [item for this in DEPLOYMENTS for item in documents(engine, this, "k8s_deploy.yaml")]
    assert {item["kind"] for item in items} == {"Deployment", "StatefulSet", "Service", "PersistentVolumeClaim"}
    for text in sorted({json.dumps(item) for item in items}):
        validate.validate(json.loads(text), "1.32", strict=True)
    items[0]["spec"]["template"]["spec"]["volume"] = []
    with pytest.raises(validate.ValidationError):
        validate.validate(items[0], "1.32", strict=True)


def strict(schema: Any) -> Any:
    """A resource's schema that allows no field which a cluster would drop in silence."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    made = {
        key: ({name: strict(item) for name, item in value.items()} if key == "properties" else strict(value))
        for key, value in schema.items()
    }
    is_open = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-embedded-resource")
    if "properties" in schema and "additionalProperties" not in schema and not is_open:
        made["additionalProperties"] = False
    return made


def of_resource(text: str, version: str) -> Any:
    """The schema of one version of a custom resource; its name and labels are Kubernetes' own."""
    (found,) = (item for item in yaml.safe_load(text)["spec"]["versions"] if item["name"] == version)
    schema = strict(found["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    return schema


SCHEMAS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "compose.yaml": ("compose-spec/schema/compose-spec.json", json.loads),
    "deploy/kserve.yaml": (
        "kserve/config/crd/full/serving.kserve.io_inferenceservices.yaml",
        lambda text: of_resource(text, "v1beta1"),
    ),
    "deploy/dynamo.yaml": (
        "dynamo/deploy/operator/config/crd/bases/nvidia.com_dynamographdeployments.yaml",
        lambda text: of_resource(text, "v1alpha1"),
    ),
    "deploy/llmd_values.yaml": ("llm-d-modelservice/charts/llm-d-modelservice/values.schema.json", json.loads),
}


@pytest.mark.external
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("place", SCHEMAS)
def test_operators_know_every_field(engine: str, place: str) -> None:
    """By the schemas that the projects publish; they are not part of AutoScout."""
    path, read = SCHEMAS[place]
    schema_file = Path(os.environ.get("AUTOSCOUT_SCHEMAS", "/nowhere")) / path
    if not schema_file.exists():
        pytest.skip(f"no {path}: name a folder with checkouts of these projects in AUTOSCOUT_SCHEMAS")
    jsonschema = pytest.importorskip("jsonschema")
    schema = read(schema_file.read_text(encoding="utf-8"))
    checker = jsonschema.validators.validator_for(schema, jsonschema.Draft7Validator)(schema)
    for this in DEPLOYMENTS if place == "compose.yaml" else ALONE:
        faults = [
            f"{this.name}: {'.'.join(map(str, fault.path))}: {fault.message[:300]}"
            for fault in checker.iter_errors(documents(engine, this, place)[0])
        ]
        assert not faults
    broken = documents(engine, DEPLOYMENTS[0], place)[0]
    broken.get("spec", broken)["no_such_field"] = 1
    broken.get("decode", {})["replicas"] = "two"  # values of a chart may have more fields than the chart reads
    assert list(checker.iter_errors(broken)), "the schema would say so"


def test_the_claim_holds_the_model_and_the_request_its_weights() -> None:
    one = next(this for this in DEPLOYMENTS if this.name == "llama-8b, one GPU")
    for file in ("k8s_deploy.yaml", "deploy/kserve.yaml", "deploy/dynamo.yaml"):
        claim = documents("vllm", one, file)[-1]
        assert (claim["kind"], claim["metadata"]["name"]) == ("PersistentVolumeClaim", "llm-cache")
        assert int(claim["spec"]["resources"]["requests"]["storage"].removesuffix("Gi")) > GIB_8B
    resources = pods("vllm", one)["k8s_deploy.yaml"]["containers"][0]["resources"]
    assert int(resources["requests"]["memory"].removesuffix("Gi")) > GIB_8B
    service = yaml.safe_load(files("vllm", one)["compose.yaml"])["services"]["llm"]
    assert service["shm_size"] == "4g"
    assert int(service["deploy"]["resources"]["reservations"]["memory"].removesuffix("g")) > GIB_8B


def test_on_several_machines_every_pod_has_a_volume_of_its_own() -> None:
    stateful = documents("vllm", TWO, "k8s_deploy.yaml")[0]["spec"]
    assert [claim["metadata"]["name"] for claim in stateful["volumeClaimTemplates"]] == ["cache"]
    text = expanded(stateful["template"]["spec"]["containers"][0]["args"][0], {})
    assert '--node-rank "$NODE_RANK"' in text
    assert not any(name.startswith("deploy/") for name in files("vllm", TWO)), "the others are for one machine"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_short_name_becomes_its_path(engine: str) -> None:
    path = "meta-llama/Llama-3.1-8B"
    for file, text in files(engine, SHORT).items():
        if file in ("run.sh", "compose.yaml", "k8s_deploy.yaml") or file.startswith("deploy/"):
            assert path in text, file
            assert "llama-3.1-8b" not in text, file


@pytest.mark.parametrize("engine", ENGINES)
def test_a_name_that_nobody_knows_must_be_given(engine: str) -> None:
    made = files(engine, UNKNOWN)
    for file, pod in pods(engine, UNKNOWN).items():
        container = pod["containers"][0]
        assert "$(MODEL)" in container["args"], file
        source = next(entry["valueFrom"] for entry in container["env"] if entry["name"] == "MODEL")
        assert source == {"configMapKeyRef": {"name": "llm", "key": "MODEL"}}, "no pod starts before it is there"
        assert "kubectl create configmap llm" in made[file]
    assert "${MODEL:?" in "".join(yaml.safe_load(made["compose.yaml"])["services"]["llm"]["command"])
    assert 'model="${MODEL:?' in made["run.sh"]


def test_signs_of_variables_reach_the_engine() -> None:
    for file, pod in pods("vllm", ODD).items():
        container = pod["containers"][0]
        env = next(entry["value"] for entry in container["env"] if entry["name"] == "SALT")
        if file == "deploy/llmd_values.yaml":
            assert '{{ "{{" }}' in env, "its chart reads variables as templates"
            env = env.replace('{{ "{{" }}', "{{")
        assert expanded(env, {"PATH": "/bin"}) == ODD.workload["env"]["SALT"], file
        assert ODD.model in [expanded(word, {"HOME": "/root"}) for word in container["args"]], file


@pytest.mark.parametrize("this", [ODD, TWO], ids=lambda this: this.name)
def test_a_hand_over_can_be_begun_with(this: Documented) -> None:
    made = files("vllm", this)
    compose, manifest = (VllmBackend().read_launch(made[name], name) for name in ("compose.yaml", "k8s_deploy.yaml"))
    assert compose.workload["model"] == manifest.workload["model"] == this.model
    assert compose.knobs == manifest.knobs
    assert not any("$$" in note for note in manifest.left_out)


def test_ray_gets_the_settings_by_their_names() -> None:
    four = next(this for this in DEPLOYMENTS if this.name == "llama-70b, four GPUs")
    (app,) = yaml.safe_load(files("vllm", four)["deploy/ray_serve.yaml"])["applications"]
    (config,) = app["args"]["llm_configs"]
    assert app["import_path"] == "ray.serve.llm:build_openai_app"
    assert config["model_loading_config"] == {"model_id": four.model, "model_source": four.model}
    assert config["engine_kwargs"]["tensor_parallel_size"] == 4
    line = shlex.join(command_line("vllm", four))
    for name, value in config["engine_kwargs"].items():
        assert f"--{name.replace('_', '-')} {value}" in line
    copies = next(this for this in DEPLOYMENTS if this.name == "llama-8b, four copies")
    assert "deploy/ray_serve.yaml" not in files("vllm", copies), "copies are a matter of Ray's own"
    assert "deploy/ray_serve.yaml" not in files("sglang", four), "Ray Serve LLM runs vLLM"


def test_short_names_lead_to_models_of_that_shape() -> None:
    for name in accepted_names():
        if path := hub_path(name):
            assert path.count("/") == 1
            assert model(path) == model(name), f"{name} is no {path}"
    assert hub_path("Meta-Llama-3-8B") == "meta-llama/Meta-Llama-3-8B"
    assert not hub_path("meta-llama/Meta-Llama-3-8B"), "a path is one already"
