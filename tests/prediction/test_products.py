"""Which part of a model computes how much, and when its gradients are there: counted by hand, and against the plan."""

from collections.abc import Callable

import pytest

from dtbench.plan.plan import count_flops, count_rows
from dtbench.prediction.products import count_products
from dtbench.scenario.schema.model import Mlp, Transformer
from dtbench.scenario.schema.scenario import Scenario

TRANSFORMER = Transformer(kind="transformer", layers=2, dim=8, heads=2, ffn_dim=16, vocab_size=32)
MLP = Mlp(kind="mlp", layers=2, dim=8, hidden_dim=16)


def test_a_block_attends_and_multiplies_and_the_head_comes_after_all() -> None:
    """Four matrices of 64, three of 128; each of 4 tokens is multiplied with all, twice; the head is 8 by 32."""
    found = count_products(TRANSFORMER, 4)
    assert found.forward == (640 + 64,) * 2
    assert found.head == 256
    assert found.backward == (2 * (640 + 64),) * 2
    assert found.backward_head == 512


def test_gradients_are_there_as_backward_passes_their_products() -> None:
    """w2, w3 and w1 with the norm before them, wo, attention, wv, wk, wq with theirs."""
    (ready, _) = count_products(TRANSFORMER, 4).ready
    assert [round(share * 1408) for share in ready] == [1408, 1408, 1280, 1152, 896, 768, 768, 512, 256]
    assert ready[0] == 1.0


def test_nobody_asks_for_the_gradient_of_what_enters_the_first_block() -> None:
    found = count_products(MLP, 4)
    assert found.forward == (256, 256)
    assert found.backward == (128 + 256, 512)
    assert found.head == found.backward_head == 0
    assert found.ready == ((1.0, 1.0, 256 / 384, 256 / 384), (1.0, 1.0, 0.5, 0.5))  # a bias with its weight
    narrow = count_products(MLP.model_copy(update={"hidden_dim": None, "bias": False}), 4)
    assert (narrow.forward, narrow.backward, narrow.ready) == ((64, 64), (64, 128), ((1.0,), (1.0,)))


@pytest.mark.parametrize(
    "model",
    [
        TRANSFORMER,
        TRANSFORMER.model_copy(update={"tied_head": True, "kv_heads": 1, "layers": 3}),
        MLP,
        MLP.model_copy(update={"hidden_dim": None}),
    ],
)
def test_all_together_are_the_operations_of_the_plan(
    scenario: Callable[..., Scenario], model: Transformer | Mlp
) -> None:
    asked = scenario(model=model.model_dump(mode="json"), data={"global_batch": 4, "sequence_length": 8})
    found = count_products(model, 8)
    each = sum((*found.forward, found.head, *found.backward, found.backward_head))
    assert 2 * each * 8 * count_rows(asked) == count_flops(asked)
