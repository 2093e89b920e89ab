"""Published sizes of well-known models, put on the architecture of kind ``transformer``.

Llama, Mistral, TinyLlama and SmolLM2 are this architecture: parameter counts equal the published ones. Qwen2.5 adds
biases to queries, keys and values. GPT-2 has learned positions, biases, LayerNorm and a feed-forward of two matrices of
``4 dim``: here it has rotary positions, RMSNorm and three matrices of ``8/3 dim``, rounded up to a multiple of 8.
``tests/scenario/test_presets.py`` accounts for each difference to the last parameter.
"""

from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator, Field, WrapSerializer

from dtbench.scenario.schema.model import Model, Preset, PresetName, Transformer, WrittenModel


def _sizes(layers: int, dim: int, heads: int, kv_heads: int, ffn_dim: int, vocab_size: int) -> Transformer:
    return Transformer(
        kind="transformer",
        layers=layers,
        dim=dim,
        heads=heads,
        kv_heads=kv_heads,
        ffn_dim=ffn_dim,
        vocab_size=vocab_size,
    )


def _gpt2(layers: int, dim: int, heads: int, ffn_dim: int) -> Transformer:
    return _sizes(layers, dim, heads, heads, ffn_dim, 50257).model_copy(update={"tied_head": True})


def _smollm2(sizes: Transformer, rope_theta: float) -> Transformer:
    return sizes.model_copy(update={"tied_head": True, "rope_theta": rope_theta})


def _qwen2(sizes: Transformer, *, tied_head: bool) -> Transformer:
    return sizes.model_copy(update={"tied_head": tied_head, "rope_theta": 1e6, "norm_eps": 1e-6})


def _llama3(sizes: Transformer, *, tied_head: bool) -> Transformer:
    return sizes.model_copy(update={"tied_head": tied_head, "rope_theta": 5e5})


PRESETS: Final = MappingProxyType[PresetName, Transformer](
    {
        # GPT-2 report, table 2, and config.json of openai-community/gpt2*
        "gpt2": _gpt2(12, 768, 12, 2048),
        "gpt2-medium": _gpt2(24, 1024, 16, 2736),
        "gpt2-large": _gpt2(36, 1280, 20, 3416),
        "gpt2-xl": _gpt2(48, 1600, 25, 4272),
        # config.json of HuggingFaceTB/SmolLM2-* (arXiv:2502.02737)
        "smollm2-135m": _smollm2(_sizes(30, 576, 9, 3, 1536, 49152), 1e5),
        "smollm2-360m": _smollm2(_sizes(32, 960, 15, 5, 2560, 49152), 1e5),
        "smollm2-1.7b": _smollm2(_sizes(24, 2048, 32, 32, 8192, 49152), 1.3e5),
        # config.json of Qwen/Qwen2.5-* (arXiv:2412.15115, table 1)
        "qwen2.5-0.5b": _qwen2(_sizes(24, 896, 14, 2, 4864, 151936), tied_head=True),
        "qwen2.5-1.5b": _qwen2(_sizes(28, 1536, 12, 2, 8960, 151936), tied_head=True),
        "qwen2.5-7b": _qwen2(_sizes(28, 3584, 28, 4, 18944, 152064), tied_head=False),
        # arXiv:2401.02385, section 2.2
        "tinyllama-1.1b": _sizes(22, 2048, 32, 4, 5632, 32000),
        # config.json of meta-llama/Llama-2-7b-hf (arXiv:2307.09288)
        "llama2-7b": _sizes(32, 4096, 32, 32, 11008, 32000),
        # config.json of meta-llama/Llama-3.2-*, Meta-Llama-3-8B (arXiv:2407.21783, table 3); 3.2's scaling of the
        # rotary frequencies for long contexts is left out
        "llama3.2-1b": _llama3(_sizes(16, 2048, 32, 8, 8192, 128256), tied_head=True),
        "llama3.2-3b": _llama3(_sizes(28, 3072, 24, 8, 8192, 128256), tied_head=True),
        "llama3-8b": _llama3(_sizes(32, 4096, 32, 8, 14336, 128256), tied_head=False),
        # arXiv:2310.06825, table 1; without its sliding window
        "mistral-7b": _sizes(32, 4096, 32, 8, 14336, 32000),
    }
)


class Published(Transformer):
    """A preset's sizes: what a cell has in place of a ``Preset``; in JSON it stays what was written."""

    written: Annotated[Preset, Field(exclude=True)]


def resolve_model(model: WrittenModel) -> Model:
    """Return the architecture with its sizes, for the schema to put into a cell: nobody else has to ask."""
    if not isinstance(model, Preset):
        return model
    changes = model.model_dump(exclude={"kind", "name", "activation_checkpointing", "compile"}, exclude_none=True)
    options = {"activation_checkpointing": model.activation_checkpointing, "compile": model.compile}
    return Published(**{**dict(PRESETS[model.name]), **changes, **options}, written=model)


def written_model(model: Model) -> WrittenModel:
    """Return what the file says."""
    return model.written if isinstance(model, Published) else model


if TYPE_CHECKING:
    ResolvedModel = Model
else:
    ResolvedModel = Annotated[
        WrittenModel, AfterValidator(resolve_model), WrapSerializer(lambda model, write: write(written_model(model)))
    ]
    """The field of a cell: reads what may be written, holds ``Model``."""
