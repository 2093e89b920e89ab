"""What outputs hold when nobody carries a collective: rank 1 of 3, as if the others were this one."""

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker room imports torch")

from dtbench.worker.network.local_fill import Seat, fill_outputs
from dtbench.worker.network.named_gloo import METHODS

SEAT = Seat(place=1, size=3)
ON_CUDA = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]


@pytest.fixture(autouse=True, params=["cpu", pytest.param("cuda", marks=ON_CUDA)])
def device(request: pytest.FixtureRequest) -> Iterator[None]:
    """Make tensors there."""
    with torch.device(request.param):
        yield


def own(*values: float) -> Any:
    return torch.tensor(values)


def empty(length: int) -> Any:
    return torch.full((length,), float("nan"))


def fill(method: str, *args: Any) -> None:
    fill_outputs(method, (*args, "options"), SEAT)


@pytest.mark.parametrize("method", ["_allgather_base", "all_gather_single"])
def test_an_all_gather_repeats_the_own_shard(method: str) -> None:
    output = empty(6).view(3, 2)
    fill(method, output, own(1, 2))
    assert output.tolist() == [[1, 2]] * 3


def test_an_all_gather_may_read_from_its_own_output() -> None:
    output = own(0, 0, 1, 2, 0, 0)
    fill("_allgather_base", output, output[2:4])
    assert output.tolist() == [1, 2, 1, 2, 1, 2]


@pytest.mark.parametrize("method", ["allgather_into_tensor_coalesced", "all_gather_single_coalesced"])
def test_coalesced_all_gathers_repeat_each_own_shard(method: str) -> None:
    outputs = [empty(3), empty(6)]
    fill(method, outputs, [own(1), own(2, 3)])
    assert [output.tolist() for output in outputs] == [[1, 1, 1], [2, 3, 2, 3, 2, 3]]


def test_an_all_gather_into_lists_repeats_the_own_shard() -> None:
    outputs = [[empty(2) for _ in range(3)]]
    fill("allgather", outputs, [own(1, 2)])
    assert [output.tolist() for output in outputs[0]] == [[1, 2]] * 3


def test_a_coalesced_all_gather_has_one_list_for_each_rank() -> None:
    outputs = [[empty(1), empty(2)] for _ in range(3)]
    fill("allgather_coalesced", outputs, [own(1), own(2, 3)])
    assert [[output.tolist() for output in row] for row in outputs] == [[[1], [2, 3]]] * 3


@pytest.mark.parametrize("method", ["_reduce_scatter_base", "reduce_scatter_single"])
def test_a_reduce_scatter_takes_the_own_chunk(method: str) -> None:
    output = empty(2)
    fill(method, output, own(0, 1, 2, 3, 4, 5))
    assert output.tolist() == [2, 3]


@pytest.mark.parametrize("method", ["reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced"])
def test_coalesced_reduce_scatters_take_each_own_chunk(method: str) -> None:
    outputs = [empty(1), empty(2)]
    fill(method, outputs, [own(0, 1, 2), own(0, 1, 2, 3, 4, 5)])
    assert [output.tolist() for output in outputs] == [[1], [2, 3]]


def test_a_reduce_scatter_of_lists_takes_the_own_part() -> None:
    output = empty(2)
    fill("reduce_scatter", [output], [[own(0, 0), own(1, 2), own(3, 3)]])
    assert output.tolist() == [1, 2]


@pytest.mark.parametrize("method", ["allreduce", "allreduce_coalesced", "reduce", "broadcast", "send"])
def test_what_is_reduced_or_broadcast_or_sent_is_left_unchanged(method: str) -> None:
    tensor = own(1, 2)
    fill(method, [tensor])
    assert tensor.tolist() == [1, 2]


def test_a_barrier_fills_nothing() -> None:
    fill("barrier")
    fill("monitored_barrier")


@pytest.mark.parametrize("method", ["alltoall_base", "all_to_all_single"])
def test_an_all_to_all_gives_what_this_rank_sends_itself(method: str) -> None:
    output = empty(6)
    fill(method, output, own(0, 1, 2, 3, 4, 5), [], [])
    assert output.tolist() == [2, 3, 2, 3, 2, 3]
    output = empty(5)
    fill(method, output, own(0, 1, 2, 3), [2, 1, 2], [1, 2, 1])
    assert output.tolist() == [1, 2, 1, 2, 1]
    fill(method, output, own(0, 1), [2, 1, 2], [1, 0, 1])
    assert output.tolist() == [0, 0, 0, 0, 0], "it sends itself nothing: zeros are finite"


def test_an_all_to_all_of_lists_gives_what_this_rank_sends_itself() -> None:
    outputs = [empty(1) for _ in range(3)]
    fill("alltoall", outputs, [own(0), own(1), own(2)])
    assert [output.tolist() for output in outputs] == [[1]] * 3


def test_a_gather_repeats_the_own_part_where_it_is_gathered_and_does_nothing_elsewhere() -> None:
    outputs = [[empty(2) for _ in range(3)]]
    fill("gather", outputs, [own(1, 2)])
    assert [output.tolist() for output in outputs[0]] == [[1, 2]] * 3
    fill("gather", [], [own(1, 2)])


@pytest.mark.parametrize("method", ["gather_single", "gather_into_tensor"])
def test_a_gather_into_one_tensor_repeats_the_own_part_and_leaves_the_empty_one_of_other_ranks(method: str) -> None:
    whole, none = empty(4), empty(0)
    fill(method, whole, own(1, 2))
    assert whole.tolist() == [1, 2, 1, 2]
    fill(method, none, own(1, 2))
    assert none.tolist() == []


def test_a_scatter_gives_the_own_part_at_its_source_and_zeros_elsewhere() -> None:
    output = empty(1)
    fill("scatter", [output], [[own(0), own(1), own(2)]])
    assert output.tolist() == [1]
    output = empty(1)
    fill("scatter", [output], [])
    assert output.tolist() == [0]


@pytest.mark.parametrize("method", ["recv", "recv_anysource"])
def test_what_is_received_is_zeros(method: str) -> None:
    output = empty(2)
    fill(method, [output])
    assert output.tolist() == [0, 0]


@pytest.mark.parametrize("method", sorted(METHODS))
def test_no_output_of_any_method_is_left_without_a_number(method: str) -> None:
    shapes: dict[str, tuple[Any, ...]] = {
        "allgather": ([[empty(1)] * 3], [own(1)]),
        "allgather_coalesced": ([[empty(1)]] * 3, [own(1)]),
        "gather": ([[empty(1)] * 3], [own(1)]),
        "reduce_scatter": ([empty(1)], [[own(1)] * 3]),
        "scatter": ([empty(1)], [[own(1)] * 3]),
        "alltoall": ([empty(1)] * 3, [own(1)] * 3),
    }
    by_tensor = ("base", "single", "tensor", "recv")
    args: tuple[Any, ...] = shapes.get(method) or ([own(1)], [own(1)])
    if method not in shapes and any(word in method for word in by_tensor):
        pair = (empty(3), own(1, 2, 3)) if "gather" not in method else (empty(3), own(1))
        args = ([pair[0]], [pair[1]]) if "coalesced" in method or "recv" in method else (*pair, [], [])
    fill(method, *args)
    for tensor in torch.utils._pytree.tree_leaves(args):
        assert not tensor.isnan().any()


def test_filled_outputs_keep_their_autograd_version() -> None:
    output = empty(4)
    fill("_allgather_base", output, own(1, 2))
    assert output._version == torch.empty(4)._version
    assert output.tolist() == [1, 2, 1, 2]
