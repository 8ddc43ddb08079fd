"""The Kubernetes example: its YAML obeys the schemas, and its bounds and arguments are ones that the pilot takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from llmserve_env.cli.main import parser
from llmserve_env.pilot.bounds import read_bounds

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "kubernetes" / "pilot.yaml"
SCHEMAS = Path(__file__).parent / "schemas"


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(EXAMPLE.read_text(encoding="utf-8")))


def document(kind: str) -> dict[str, Any]:
    return next(found for found in documents() if found["kind"] == kind)


def schema_of(kind: str) -> dict[str, Any]:
    if kind == "ScaledObject":
        found: dict[str, Any] = json.loads((SCHEMAS / "keda-scaledobject.json").read_text())
        return found
    kubernetes = json.loads((SCHEMAS / "kubernetes-1.37.json").read_text())
    return {"$ref": f"#/definitions/{kubernetes['kinds'][kind]}", "definitions": kubernetes["definitions"]}


@pytest.mark.parametrize("kind", [found["kind"] for found in documents()])
def test_every_document_obeys_its_schema(kind: str) -> None:
    jsonschema.validate(document(kind), schema_of(kind))


def test_a_misspelt_field_is_found() -> None:
    wrong = document("Deployment")
    wrong["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(jsonschema.ValidationError, match="volumeMount"):
        jsonschema.validate(wrong, schema_of("Deployment"))


def test_its_bounds_are_a_bounds_file(tmp_path: Path) -> None:
    path = tmp_path / "bounds.yaml"
    path.write_text(document("ConfigMap")["data"]["bounds.yaml"])
    bounds = read_bounds(path)
    assert set(bounds.knobs) == {"batch_cap", "token_budget", "kv_budget_fraction"}
    assert bounds.replicas.high == document("ScaledObject")["spec"]["maxReplicaCount"]


def test_its_arguments_are_those_of_the_command() -> None:
    containers = document("Deployment")["spec"]["template"]["spec"]["containers"]
    (pilot,) = (found for found in containers if found["name"] == "pilot")
    args = parser().parse_args([*pilot["command"][1:], *pilot["args"]])
    assert args.engine == "http://127.0.0.1:8000" and args.dry_run
    mounts = [{mount["name"]: mount["mountPath"] for mount in found["volumeMounts"]} for found in containers]
    assert mounts[0]["control"] == mounts[1]["control"] == str(args.control_dir)


def test_the_autoscaler_asks_for_a_metric_that_the_pilot_exports() -> None:
    query = document("ScaledObject")["spec"]["triggers"][0]["metadata"]["query"]
    exported = (ROOT / "llmserve_env" / "pilot" / "exporter.py").read_text(encoding="utf-8")
    assert "llmserve_pilot_load" in query and '"llmserve_pilot_load"' in exported
