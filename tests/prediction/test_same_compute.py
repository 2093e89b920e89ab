"""Which settings leave compute as it was: a list that holds fields which there are, and nothing that computes."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from dtbench.prediction.same_compute import LEAVES_COMPUTE, find_other_compute, held_share
from dtbench.scenario.schema.scenario import Fsdp1, Fsdp2, Parallel

READ: TypeAdapter[Parallel] = TypeAdapter(Parallel)


def test_only_fields_that_there_are_are_listed() -> None:
    for record, names in LEAVES_COMPUTE.items():
        assert names <= set(record.model_fields), record


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ({"kind": "ddp", "replicas": 2}, {"bucket_cap_mb": 2.0, "comm_hook": {"kind": "fp16_compress"}}, []),
        (
            {"kind": "ddp", "replicas": 2},
            {"mixed_precision": {"param_dtype": "bfloat16"}},
            ["parallel.mixed_precision"],
        ),
        ({"kind": "fsdp1", "shards": 2}, {"sharding_strategy": "NO_SHARD", "forward_prefetch": True}, []),
        ({"kind": "fsdp1", "shards": 2}, {"use_orig_params": True}, ["parallel.use_orig_params"]),
        ({"kind": "fsdp1", "shards": 2}, {"mixed_precision": {"reduce_dtype": "bfloat16"}}, []),
        (
            {"kind": "fsdp2", "shards": 2},
            {"mixed_precision": {"reduce_dtype": "bfloat16", "param_dtype": "bfloat16"}},
            ["parallel.mixed_precision.param_dtype"],
        ),
        ({"kind": "fsdp2", "shards": 4}, {"shards": 2, "tensor": 2}, ["parallel.tensor"]),
    ],
)
def test_what_may_compute_otherwise_is_named(before: dict[str, Any], after: dict[str, Any], names: list[str]) -> None:
    old, new = READ.validate_python(before), READ.validate_python({**before, **after})
    assert list(find_other_compute(old, new)) == names


def test_a_rank_updates_what_it_holds() -> None:
    assert held_share(READ.validate_python({"kind": "ddp", "replicas": 4})) == 1
    assert held_share(Fsdp1(kind="fsdp1", shards=4)) == 0.25
    assert held_share(Fsdp1(kind="fsdp1", shards=4, sharding_strategy="NO_SHARD")) == 1
    assert held_share(Fsdp2(kind="fsdp2", shards=2, replicas=2)) == 0.5
