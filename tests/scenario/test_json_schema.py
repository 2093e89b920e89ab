"""The schema for editors agrees with the reader: what it refuses is wrong, and what ships is right."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from dtbench.base.errors import ScenarioError
from dtbench.scenario.json_schema import make_file_schema
from dtbench.scenario.load import load_scenario
from dtbench.scenario.schema.scenario import Scenario
from dtbench.scenario.sweeps.axes import list_fields

_FILES = sorted((Path(__file__).parents[2] / "scenarios").rglob("*.yaml"))


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = make_file_schema()
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def is_valid(validator: Any, text: str) -> bool:
    return bool(validator.is_valid(yaml.safe_load(text)))


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_a_shipped_scenario_is_valid(validator: Any, path: Path) -> None:
    errors = [error.message for error in validator.iter_errors(yaml.safe_load(path.read_text(encoding="utf-8")))]
    assert errors == []


MATRIX = """\
matrix:
  parallel.bucket_cap_mb: [null, 1, 4]
  optimizer.betas: [[0.9, 0.99]]
  env.NCCL_ALGO: ["Ring", null]
  way: {a: {}, b: {parallel: {gradient_as_bucket_view: true}}}
  exclude: [{parallel.bucket_cap_mb: 1, way: b}]
  include: [{way: a}]
"""


@pytest.mark.parametrize(
    "tail",
    [
        "",
        "cells: {a: {}, b.c: {seed: 3}}\n",
        "env: {OMP_NUM_THREADS: '2'}\npython: /opt/python\n",
        MATRIX,
        f"cells: {{a: {{}}}}\n{MATRIX}",
    ],
)
def test_what_is_right_is_valid(validator: Any, small: str, tail: str) -> None:
    assert load_scenario(small + tail, "my.yaml").cells
    assert is_valid(validator, small + tail)


def test_a_section_may_be_completed_by_cells(validator: Any, small: str) -> None:
    text = small.replace("  replicas: 2\n", "").replace("  layers: 2\n", "")
    cells = "cells: {a: {parallel: {replicas: 2}, model: {layers: 1}}}\n"
    assert load_scenario(text + cells, "my.yaml").cells
    assert is_valid(validator, text + cells)
    assert not is_valid(validator, text)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("layers: 2", "layer: 2"),
        ("layers: 2", "layers: two"),
        ("layers: 2", "layers: 0"),
        ("schema_version: 1", "schema_version: 2"),
        ("schema_version: 1\n", ""),
        ("kind: ddp", "kind: dp"),
        ("kind: ddp", "kind: fsdp2"),
        ("replicas: 2", "replicas: 2\ncells: {}"),
        ("replicas: 2", "replicas: 2\ncells: {A: {}}"),
        ("replicas: 2", "replicas: 2\ncells: {a: {sed: 1}}"),
        ("replicas: 2", "replicas: 2\ncells: {a: {cells: {}}}"),
        ("replicas: 2", "replicas: 2\ncells: {a: {schema_version: 1}}"),
        ("replicas: 2", "replicas: 2\nmatrix: {}"),
        ("replicas: 2", "replicas: 2\nmatrix: {seed: 1}"),
        ("replicas: 2", "replicas: 2\nmatrix: {seed: []}"),
        ("replicas: 2", "replicas: 2\nmatrix: {seed: [a]}"),
        ("replicas: 2", "replicas: 2\nmatrix: {seed: [1, 1]}"),
        ("replicas: 2", "replicas: 2\nmatrix: {sed: [1]}"),
        ("replicas: 2", "replicas: 2\nmatrix: {env.NCCL_ALGO: [1]}"),
        ("replicas: 2", "replicas: 2\nmatrix: {way: {a: 1}}"),
        ("replicas: 2", "replicas: 2\nmatrix: {seed: [1], exclude: {seed: 1}}"),
        ("replicas: 2", "replicas: 2\nenv: {RANK: '1'}"),
        ("replicas: 2", "replicas: 2\nenv: {NCCL_ALGO: 1}"),
    ],
)
def test_what_the_schema_refuses_the_reader_refuses_too(validator: Any, small: str, before: str, after: str) -> None:
    text = small.replace(before, after)
    assert text != small
    assert not is_valid(validator, text)
    with pytest.raises(ScenarioError):
        load_scenario(text, "my.yaml")


def test_every_field_is_an_axis_and_has_the_words_of_its_docstring() -> None:
    schema = make_file_schema()
    axes = schema["properties"]["matrix"]["properties"]
    fields = {name for name, _ in list_fields(Scenario, ()) if name != "env"}
    assert set(axes) - {"exclude", "include"} == fields
    assert axes["parallel.bucket_cap_mb"]["description"].startswith("Axis: Bucket capacity in MiB; left out: 25 after")
    ddp = schema["$defs"]["Ddp"]
    assert ddp["properties"]["static_graph"]["description"].startswith("The graph never changes")
    part = json.loads(json.dumps(schema["$defs"]["Part of Ddp"]).replace("Part of ", ""))
    unions = {"comm_hook"}  # a part may leave its kind out
    assert {k: v for k, v in part["properties"].items() if k not in unions} == {
        k: v for k, v in ddp["properties"].items() if k not in unions
    }
    assert "required" not in schema["$defs"]["Part of Ddp"]


def test_the_command_prints_nothing_else() -> None:
    command = [sys.executable, "-m", "dtbench", "schema"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert json.loads(printed) == make_file_schema()
