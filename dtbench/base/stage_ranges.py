"""How a pipeline's schedule says in a trace what it does: stage, action and micro-batch.

::

    PP:2F0                        stage 2 computes the forward of micro-batch 0
    PP:0SEND_F1                   stage 0 sends what that gave
    PP:(0SEND_F2;0RECV_B0)P2P     two of these at once
    Forward 3                     ScheduleGPipe's, which names no stage

torch writes these for its schedules of several stages a rank (``torch/distributed/pipelining/schedules.py``,
``_Action``); ``dtbench.capture`` writes them for those of one.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from dtbench.base.vocabulary import Operation

STAGE_PREFIX: Final = "PP:"
_ACTION: Final = re.compile(r"(?P<stage>\d{1,9})(?P<action>[A-Z]+(?:_[A-Z]+)*)(?P<batch>\d{0,9})")
_SEVERAL: Final = re.compile(r"\((?P<actions>[^()]*)\)[A-Z0-9_]+")
_OF_ONE_STAGE: Final = re.compile(r"(?P<way>Forward|Backward) (?P<batch>\d{1,9})")
_WAYS: Final = {Operation.SEND: "SEND_", Operation.RECV: "RECV_"}
COMPUTING: Final = {"F": "forward", "B": "backward", "I": "input gradients", "W": "weight gradients"}
"""What each action that computes does; zero-bubble schedules compute the two kinds of gradients apart."""


@dataclass(frozen=True)
class StageAction:
    """What a pipeline stage does.

    Attributes:
        stage: None: not said.
        action: ``F``, ``B``, ``SEND_F``, ...; as torch calls it.
        batch: the micro-batch; None: not said.
    """

    stage: int | None
    action: str
    batch: int | None


def stage_range(*actions: StageAction) -> str:
    """Write the name of the range in which a stage does something, or several things at once.

    >>> stage_range(StageAction(0, "SEND_F", 1)), stage_range(StageAction(0, "SEND_F", 2), StageAction(0, "RECV_B", 0))
    ('PP:0SEND_F1', 'PP:(0SEND_F2;0RECV_B0)P2P')
    """
    written = [f"{one.stage}{one.action}{'' if one.batch is None else one.batch}" for one in dict.fromkeys(actions)]
    return f"{STAGE_PREFIX}{written[0]}" if len(written) == 1 else f"{STAGE_PREFIX}({';'.join(written)})P2P"


def parse_stage_range(name: str) -> tuple[StageAction, ...]:
    """Read it back; nothing of any other name."""
    if (match := _OF_ONE_STAGE.fullmatch(name)) is not None:
        return (StageAction(None, match["way"][0], int(match["batch"])),)
    if not name.startswith(STAGE_PREFIX):
        return ()
    text = name.removeprefix(STAGE_PREFIX)
    several = _SEVERAL.fullmatch(text)
    found = [_ACTION.fullmatch(part) for part in (several["actions"].split(";") if several else [text])]
    return tuple(
        StageAction(int(match["stage"]), match["action"], int(match["batch"]) if match["batch"] else None)
        for match in found
        if match is not None
    )


class Hop(NamedTuple):
    """What goes from one stage to its neighbour: the same at both ends.

    Attributes:
        way: ``F``: forward, to the next stage; ``B``: backward, to the stage before.
        stage: that receives.
        batch: the micro-batch.
    """

    way: str
    stage: int
    batch: int


def find_hops(names: Iterable[str], operation: Operation | None) -> frozenset[Hop]:
    """Return which hop a send or receive may be, as the innermost range around it says; empty: none says.

    The ``SEND_F`` of a stage is the ``RECV_F`` of the next, its ``SEND_B`` the ``RECV_B`` of the one before
    (``torch/distributed/pipelining/schedules.py``, ``_add_send_recv``).

    >>> find_hops(["PP:0SEND_F1"], Operation.SEND) == find_hops(["PP:(1RECV_F1;1SEND_B0)P2P"], Operation.RECV)
    True
    """
    way = _WAYS.get(operation) if operation is not None else None
    if way is None:
        return frozenset()
    actions = next((found for name in names if (found := parse_stage_range(name))), ())
    return frozenset(hop for one in actions if (hop := _find_hop(one, way)) is not None)


def _find_hop(action: StageAction, way: str) -> Hop | None:
    if not action.action.startswith(way) or action.stage is None or action.batch is None:
        return None
    towards = action.action.removeprefix(way)
    onwards = (1 if towards == "F" else -1) if way == _WAYS[Operation.SEND] else 0
    return Hop(towards, action.stage + onwards, action.batch)


def name_stages(actions: Sequence[StageAction], operation: Operation | None) -> str:
    """Name whose a send or receive is: ``stage 0, micro-batch 1``; empty text: nobody says.

    Args:
        actions: what is done at once.
        operation: which of them it is, if there are such; None: all of them.
    """
    way = _WAYS.get(operation) if operation is not None else None
    mine = [one for one in actions if way is not None and one.action.startswith(way)] or actions
    stages = dict.fromkeys(one.stage for one in mine)
    return "; ".join(_name_stage(stage, [one.batch for one in mine if one.stage == stage]) for stage in stages)


def _name_stage(stage: int | None, batches: Iterable[int | None]) -> str:
    numbers = [str(batch) for batch in dict.fromkeys(batches) if batch is not None]
    said = f"micro-batch{'es' if len(numbers) > 1 else ''} {' and '.join(numbers)}" if numbers else ""
    return ", ".join(part for part in ("" if stage is None else f"stage {stage}", said) if part)
