"""What this machine can run as one JSON document."""

from typing import Final

from dtbench.base.document import BYTES, FLAG, TEXT, Key, Many, OrNull, Schema, Shape, keys_of_fields, make_schema
from dtbench.base.record_schema import Typed
from dtbench.cli.machine_checks import Ability, Finding, LookedAt
from dtbench.cli.torch_probe import CudaDevice, NoTorch, Torch
from dtbench.plan.plan import Machine

_FINDING: Final = Shape[Finding](
    "Finding",
    "One thing that was looked at.",
    (
        Key("what", TEXT, "it is", lambda one: one.what),
        Key("found", TEXT, "in words, with their units", lambda one: one.found),
        Key("advice", OrNull(TEXT), "what to do; null: nothing needs to be done", lambda one: one.advice),
    ),
)
_ABILITY: Final = Shape[Ability](
    "Ability",
    "Whether a scenario can run here.",
    (
        Key("scenario", TEXT, "its name", lambda one: one.scenario),
        Key("can_run", FLAG, "it can", lambda one: one.can_run),
        Key("words", TEXT, "how, or why not", lambda one: one.words),
    ),
)
_DEVICE: Final = Shape[CudaDevice](
    "CudaDevice",
    "One GPU.",
    (
        Key("name", TEXT, "of its model", lambda one: one.name),
        Key("memory_bytes", BYTES, "its memory", lambda one: one.memory_bytes),
    ),
)
_TORCH: Final = Shape[Torch](
    "Torch",
    "An installed torch.",
    (
        Key("version", TEXT, "which", lambda one: one.version),
        *keys_of_fields(Torch, cuda=OrNull(TEXT), nccl=OrNull(TEXT)),
        Key("has_gloo", FLAG, "it was built with gloo", lambda one: one.has_gloo),
        Key("devices", Many(_DEVICE), "GPUs that it sees", lambda one: one.devices),
        Key("is_tested", FLAG, "dtbench was tested with this version", lambda one: one.is_tested),
    ),
)
_DOCUMENT: Final = Shape[LookedAt](
    "Doctor",
    "What this machine can run, and what is missing.",
    (
        Key("findings", Many(_FINDING), "everything that was looked at", lambda seen: seen.findings),
        Key("machine", Typed(Machine), "as plans see it", lambda seen: seen.machine),
        Key(
            "torch",
            OrNull(_TORCH),
            "null: there is none that can be used",
            lambda seen: None if isinstance(seen.torch, NoTorch) else seen.torch,
        ),
        Key("scenarios", Many(_ABILITY), "each that a name can find", lambda seen: seen.abilities),
    ),
)


def document(seen: LookedAt) -> dict[str, object]:
    """Return the document."""
    return _DOCUMENT.write(seen)


def schema() -> Schema:
    """Return its JSON Schema."""
    return make_schema("dtbench doctor --json", _DOCUMENT)
