"""A scenario of two ranks that says nothing of where they run: the shortest training that is measured in full."""

from typing import Final

SCENARIO: Final = """\
# Do two nodes train together?
schema_version: 1
device: cpu
model: {kind: mlp, layers: 1, dim: 8, hidden_dim: 8}
data: {global_batch: 2, sequence_length: 1}
parallel: {kind: ddp, replicas: 2}
correctness: {enabled: false}
measure: {warmup: {min_steps: 8, max_steps: 8}, measured_steps: 4, profiled_steps: 1}
"""
LONGEST_S: Final = 300
"""A launch takes a few seconds; on a machine that others use, any time."""
