"""A small Llama of the transformers library with random weights: nothing is downloaded."""

import torch
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

from dtbench import TrainingModel


def build(layers: int, dim: int) -> TrainingModel:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=500,
        hidden_size=dim,
        intermediate_size=2 * dim,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
    )

    def make_batch(generator: torch.Generator, rows: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(500, (rows, 32), generator=generator)
        return {"input_ids": tokens, "labels": tokens}

    columns = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
    rows = ("self_attn.o_proj", "mlp.down_proj")
    return TrainingModel(
        module=LlamaForCausalLM(config),
        make_batch=make_batch,
        tensor_plan={f"model.layers.*.{name}": ColwiseParallel() for name in columns}
        | {f"model.layers.*.{name}": RowwiseParallel() for name in rows},
    )
