"""Presets have the published sizes; every parameter more or less than published is accounted for."""

import json
from pathlib import Path
from typing import get_args

import pytest

import dtbench
from dtbench.plan.traffic.parameters import list_parameters
from dtbench.scenario.schema.model import Compile, Preset, PresetName, Transformer
from dtbench.scenario.schema.presets import PRESETS, resolve_model
from dtbench.scenario.schema.repeat import AutoRepeat
from dtbench.scenario.schema.scenario import Scenario

PUBLISHED = {
    # number of elements in the checkpoints on the Hugging Face hub, tied weights once
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-7b": 7_615_616_512,
    "tinyllama-1.1b": 1_100_048_384,
    "llama2-7b": 6_738_415_616,
    "llama3.2-1b": 1_235_814_400,
    "llama3.2-3b": 3_212_749_824,
    "llama3-8b": 8_030_261_248,
    "mistral-7b": 7_241_732_096,
}


def published_but_not_here(name: str, sizes: Transformer) -> int:
    """Count what a published architecture has and this one lacks, less what this one has more."""
    layers, dim, ffn_dim = sizes.layers, sizes.dim, sizes.ffn_dim
    if name.startswith("gpt2"):
        positions, last_norm_bias = 1024 * dim, dim
        biases = layers * (3 * dim + dim + 4 * dim + dim + 2 * dim)  # qkv, out, up, down, two norms
        return positions + biases + last_norm_bias - layers * dim * (3 * ffn_dim - 8 * dim)
    if name.startswith("qwen2.5"):
        return layers * (dim + 2 * dim // sizes.heads * (sizes.kv_heads or 0))
    return 0


def test_every_name_has_sizes() -> None:
    assert set(PRESETS) == set(get_args(PresetName)) == set(PUBLISHED)


@pytest.mark.parametrize("name", get_args(PresetName))
def test_a_preset_has_the_published_number_of_parameters_up_to_what_is_said(name: PresetName) -> None:
    sizes = resolve_model(Preset(kind="preset", name=name))
    assert isinstance(sizes, Transformer)
    count = sum(parameter.numel for parameter in list_parameters(sizes))
    assert count + published_but_not_here(name, sizes) == PUBLISHED[name]
    assert count == pytest.approx(PUBLISHED[name], rel=0.01)


def test_what_is_written_overrides_the_preset() -> None:
    short = resolve_model(Preset(kind="preset", name="llama3-8b", layers=2, vocab_size=1000))
    published = PRESETS["llama3-8b"].model_copy(update={"layers": 2, "vocab_size": 1000})
    assert short.model_dump() == published.model_dump()


def test_a_cell_has_the_sizes_and_its_json_the_words() -> None:
    words = {"kind": "preset", "name": "llama3-8b", "layers": 2, "compile": {"backend": "eager"}}
    sections = {"schema_version": 1, "data": {"global_batch": 2, "sequence_length": 8}, "repeat": "auto"}
    text = json.dumps({**sections, "model": words, "parallel": {"kind": "ddp", "replicas": 2}})
    cell = Scenario.model_validate_json(text)
    assert isinstance(cell.model, Transformer)
    assert (cell.model.dim, cell.model.layers) == (4096, 2)
    assert cell.model.compile == Compile(backend="eager"), "options are the cell's, not the preset's"
    assert cell.repeat == AutoRepeat()
    assert json.loads(cell.model_dump_json(exclude_unset=True)) == json.loads(text)
    assert Scenario.model_validate_json(cell.model_dump_json()) == cell


def test_nobody_but_the_schema_resolves() -> None:
    names = ("resolve_model", "PRESETS")
    files = [path for path in Path(dtbench.__file__).parent.rglob("*.py") if path.name != "presets.py"]
    assert [path for path in files if any(name in path.read_text(encoding="utf-8") for name in names)] == []
