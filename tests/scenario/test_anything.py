"""Whatever a file or an override holds, the answer is a scenario or a ScenarioError, never another exception."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dtbench.base.errors import ScenarioError
from dtbench.scenario.load import load_scenario
from tests.scenario.yaml_pieces import YAML_PIECES

_BASE = """\
# Does it work?
schema_version: 1
model: {kind: transformer, layers: 2, dim: 64, heads: 4, ffn_dim: 96, vocab_size: 64}
data: {global_batch: 4, sequence_length: 16}
cells:
  ddp:
    parallel:
      kind: ddp
      replicas: 2
  fsdp:
    parallel: {kind: fsdp2, shards: 2, mixed_precision: {param_dtype: bfloat16}}
matrix:
  seed: [1, 2]
  way: {a: {}, b: {repeat: 2}}
  exclude: [{seed: 1, way: b}]
  include: [{cell: ddp, seed: 3}]
functions: [distributed.DistributedDataParallel.forward]
checks:
  - {kind: bound, value: hidden_fraction, at_most: 1, because: it is one}
  - {kind: losses, tolerance: 0.1}
answer: "It is {lowest step_time.median}."
"""
_LINES = _BASE.splitlines(keepends=True)
_PIECES = st.one_of(
    st.sampled_from(YAML_PIECES),
    st.text(max_size=8),
    st.integers().map(str),
    st.floats().map(str),
)


def answers(text: str, *overrides: str) -> None:
    told = None
    try:
        assert load_scenario(text, "my.yaml", overrides).cells
    except ScenarioError as error:
        told = str(error)
    assert told is None or told.strip()
    assert told is None or told.encode()  # printable: no half characters


@given(st.text(max_size=200))
def test_any_text_is_answered(text: str) -> None:
    answers(text)


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(0, len(_BASE)), st.integers(0, 12), _PIECES), min_size=1, max_size=4))
def test_any_mutation_of_a_scenario_is_answered(mutations: list[tuple[int, int, str]]) -> None:
    text = _BASE
    for start, length, piece in mutations:
        text = text[:start] + piece + text[start + length :]
    answers(text)


@given(st.permutations(_LINES), st.integers(0, len(_LINES)))
def test_any_order_of_lines_is_answered(lines: list[str], count: int) -> None:
    answers("".join(lines[:count]))


_PATHS = [
    "model.layers",
    "parallel",
    "parallel.kind",
    "cells.ddp.seed",
    "cells.fsdp.parallel.mixed_precision",
    "data",
    "cells",
    "..",
    "",
]


@settings(max_examples=200)
@given(
    st.lists(st.one_of(st.text(max_size=20), st.builds("{}={}".format, st.sampled_from(_PATHS), _PIECES)), max_size=3)
)
def test_any_override_is_answered(overrides: list[str]) -> None:
    answers(_BASE, *overrides)
