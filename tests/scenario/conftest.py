"""A small valid scenario that tests break in one place at a time."""

import pytest

SMALL = """\
# Does it work?
schema_version: 1
device: cpu
model:
  kind: transformer
  layers: 2
  dim: 64
  heads: 4
  ffn_dim: 96
  vocab_size: 64
data:
  global_batch: 4
  sequence_length: 16
optimizer:
  kind: adamw
  lr: 3.0e-4
parallel:
  kind: ddp
  replicas: 2
"""

TWO_CELLS = (
    SMALL.partition("parallel:")[0]
    + """\
cells:
  ddp:
    parallel:
      kind: ddp
      replicas: 2
  fsdp:
    parallel:
      kind: fsdp2
      shards: 2
"""
)


@pytest.fixture
def small() -> str:
    return SMALL


@pytest.fixture
def two_cells() -> str:
    return TWO_CELLS
