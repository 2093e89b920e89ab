"""A decoder-only transformer: RMSNorm, rotary grouped-query attention, SwiGLU; no buffers, no parallelism.

Parameters and their order are those of ``dtbench.plan.traffic.parameters``: plans are computed without torch.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - torch's usual name
from torch import Tensor, nn

from dtbench.scenario.schema.model import Transformer as TransformerSettings
from dtbench.scenario.schema.scenario import Scenario
from dtbench.worker.dtypes import to_dtype
from dtbench.worker.models.built import BuiltModel
from dtbench.worker.models.tensor_plan import transformer_styles
from dtbench.worker.models.weights import Weights, fill_matrices

INITIAL_STD = 0.02
"""Of every matrix: GPT-2's choice."""


class Tokens(NamedTuple):
    """Tokens and the tokens that follow them, both (rows, tokens), int64."""

    inputs: Tensor
    targets: Tensor


class Attention(nn.Module):
    """Causal grouped-query attention; the number of heads is read off the projections: a shard of them works too."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.head_dim = settings.dim // settings.heads
        kv_dim = self.head_dim * (settings.kv_heads or settings.heads)
        self.wq = nn.Linear(settings.dim, settings.dim, bias=False)
        self.wk = nn.Linear(settings.dim, kv_dim, bias=False)
        self.wv = nn.Linear(settings.dim, kv_dim, bias=False)
        self.wo = nn.Linear(settings.dim, settings.dim, bias=False)

    def forward(self, x: Tensor, rotation: Tensor) -> Tensor:
        """Attend; ``x`` is (rows, tokens, dim), ``rotation`` (2, tokens, head_dim / 2)."""
        query, key, value = (self._split_heads(projection(x)) for projection in (self.wq, self.wk, self.wv))
        query, key = rotate(query, rotation), rotate(key, rotation)
        grouped = query.size(1) != key.size(1)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)
        return self.wo(mixed.transpose(1, 2).flatten(2))

    def _split_heads(self, projected: Tensor) -> Tensor:
        return projected.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)


class FeedForward(nn.Module):
    """SwiGLU (arXiv:2002.05202): ``w2(silu(w1 x) * w3 x)``."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.w1 = nn.Linear(settings.dim, settings.ffn_dim, bias=False)
        self.w3 = nn.Linear(settings.dim, settings.ffn_dim, bias=False)
        self.w2 = nn.Linear(settings.ffn_dim, settings.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, tokens, dim) to the same shape."""
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    """Pre-norm attention and feed-forward, each with a residual."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(settings.dim, eps=settings.norm_eps)
        self.attention = Attention(settings)
        self.ffn_norm = nn.RMSNorm(settings.dim, eps=settings.norm_eps)
        self.ffn = FeedForward(settings)

    def forward(self, x: Tensor, rotation: Tensor) -> Tensor:
        """Map (rows, tokens, dim) to the same shape."""
        x = x + self.attention(self.attention_norm(x), rotation)
        return x + self.ffn(self.ffn_norm(x))


class Transformer(nn.Module):
    """Tokens (rows, tokens) in, logits (rows, tokens, vocab) out."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.settings = settings
        self.embedding = nn.Embedding(settings.vocab_size, settings.dim, sparse=settings.sparse_embedding)
        self.layers = nn.ModuleList(Block(settings) for _ in range(settings.layers))
        self.norm = nn.RMSNorm(settings.dim, eps=settings.norm_eps)
        self.head = nn.Linear(settings.dim, settings.vocab_size, bias=False)
        if settings.tied_head:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Return next-token logits; the rotation is computed anew so that the model has no buffers to broadcast."""
        rotation = make_rotation(self.settings, tokens.size(1), tokens.device)
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, rotation)
        return self.head(self.norm(x))


def build_transformer(settings: TransformerSettings, scenario: Scenario, device: torch.device) -> BuiltModel:
    """Build the model on the meta device, and say how it may be cut."""

    def make_batch(generator: torch.Generator, rows: int) -> Tokens:
        shape = (rows, scenario.data.sequence_length + 1)
        tokens = torch.randint(settings.vocab_size, shape, generator=generator)
        return Tokens(inputs=tokens[:, :-1], targets=tokens[:, 1:])

    with torch.device("meta"):
        module = Transformer(settings).to(to_dtype(scenario.precision.dtype))
    return BuiltModel(
        module=module,
        blocks=tuple(f"layers.{index}" for index in range(settings.layers)),
        make_batch=make_batch,
        compute_output=lambda module, batch: module(batch.inputs),
        compute_loss=next_token_loss,
        tensor_styles=lambda options: transformer_styles(settings.layers, options),
        sequence_witness="layers.0.attention_norm",
        weights=Weights.of(module, seed=scenario.seed, device=device, fill=fill_matrices(lambda _whole: INITIAL_STD)),
    )


def next_token_loss(logits: Tensor, batch: Tokens) -> Tensor:
    """Return the mean cross-entropy, in float32, of (rows, tokens, vocab) against the batch's targets."""
    return F.cross_entropy(logits.flatten(0, 1).float(), batch.targets.flatten())


def make_rotation(settings: TransformerSettings, tokens: int, device: torch.device) -> Tensor:
    """Return cosines and sines, float32, shape (2, tokens, head_dim / 2) (RoFormer, arXiv:2104.09864)."""
    half = settings.dim // settings.heads // 2
    frequencies = settings.rope_theta ** (-torch.arange(half, device=device, dtype=torch.float32) / half)
    angles = torch.outer(torch.arange(tokens, device=device, dtype=torch.float32), frequencies)
    return torch.stack((angles.cos(), angles.sin()))


def rotate(heads: Tensor, rotation: Tensor) -> Tensor:
    """Turn the pairs (i, i + head_dim / 2) of (rows, heads, tokens, head_dim) by their position's angles."""
    cos, sin = rotation.to(heads.dtype)
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)
