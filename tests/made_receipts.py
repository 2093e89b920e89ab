"""What a rank reads back of its knobs, for records that tests make: nothing is judged where one is missing."""

from typing import Final

from dtbench.base.record import Record
from dtbench.scenario.schema.ddp import Ddp
from dtbench.scenario.schema.optimizer import AdamW, Sgd
from dtbench.scenario.schema.scenario import Accumulation, Fsdp1, Fsdp2, Precision
from dtbench.store.records.rank import Receipt, ReceiptOutcome

_SECTIONS: Final[dict[str, tuple[type[Record], ...]]] = {
    "parallel": (Ddp, Fsdp1, Fsdp2),
    "optimizer": (AdamW, Sgd),
    "precision": (Precision,),
    "accumulation": (Accumulation,),
}
_KNOBS: Final = dict.fromkeys(
    f"{name}.{field}" for name, kinds in _SECTIONS.items() for kind in kinds for field in kind.model_fields
)
EVERY_KNOB: Final = tuple(Receipt(knob=knob, asked="x", got="x", outcome=ReceiptOutcome.AGREES) for knob in _KNOBS)
"""Of every strategy and optimizer."""
