"""The part of Kineto's events that is kept, as types that a JSON decoder fills in one pass.

Old spellings (torch 1.8 to 1.12) are told apart here and nowhere else.
"""

import math
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import Any, Final

import msgspec

RAW_EMPTY: Final = msgspec.Raw(b"")
_field = msgspec.field


class Args(msgspec.Struct, gc=False, frozen=True):
    """Arguments of an event; names as Kineto writes them (torch's ``profiler/util.h``, ``ParamCommsUtils.hpp``)."""

    correlation: int | None = None
    sequence: int | None = _field(default=None, name="Sequence number")
    forward_thread: int | None = _field(default=None, name="Fwd thread id")
    grid: msgspec.Raw = RAW_EMPTY
    block: msgspec.Raw = RAW_EMPTY
    modules: str | None = _field(default=None, name="Module Hierarchy")
    collective: str | None = _field(default=None, name="Collective name")
    group: str | int | None = _field(default=None, name="Process Group Name")
    group_description: str | None = _field(default=None, name="Process Group Description")
    group_size: int | None = _field(default=None, name="Group size")
    group_ranks: msgspec.Raw = _field(default=RAW_EMPTY, name="Process Group Ranks")
    dtype: str | None = None
    in_elements: int | None = _field(default=None, name="In msg nelems")
    out_elements: int | None = _field(default=None, name="Out msg nelems")
    seq: int | None = _field(default=None, name="Seq")
    comms_id: int | str | None = _field(default=None, name="Comms Id")
    source_rank: int | None = _field(default=None, name="Src Rank")
    destination_rank: int | None = _field(default=None, name="Dst Rank")
    is_async: bool | int | None = _field(default=None, name="Is asynchronized op")
    shapes: msgspec.Raw = _field(default=RAW_EMPTY, name="Input Dims")
    old_shapes: msgspec.Raw = _field(default=RAW_EMPTY, name="Input dims")
    dtypes: msgspec.Raw = _field(default=RAW_EMPTY, name="Input type")
    values: msgspec.Raw = _field(default=RAW_EMPTY, name="Concrete Inputs")
    finished: msgspec.Raw = RAW_EMPTY


NO_ARGS: Final = Args()


class Row(msgspec.Struct, gc=False, kw_only=True):
    """What a complete event has beside its times."""

    name: str = ""
    cat: str | None = None
    pid: int | str | float | None = None
    tid: int | str | float | None = None
    args: Args = NO_ARGS


class Complete(Row, gc=False, kw_only=True, tag_field="ph", tag="X"):
    """A complete event, times in us."""

    ts: float = math.nan
    dur: float = math.nan


class ExactComplete(Row, gc=False, kw_only=True, tag_field="ph", tag="X"):
    """A complete event whose times are read from their decimal text."""

    ts: Decimal | None = None
    dur: Decimal | None = None


class Arrow(msgspec.Struct, gc=False):
    """One end of a flow arrow."""

    cat: str | None = None
    id: int | str | None = None
    ts: float = math.nan


class ArrowStart(Arrow, gc=False, tag_field="ph", tag="s"):
    """Where an arrow starts."""


class ArrowEnd(Arrow, gc=False, tag_field="ph", tag="f"):
    """Where an arrow ends."""


class ExactArrow(msgspec.Struct, gc=False):
    """One end of a flow arrow, its time from its decimal text."""

    cat: str | None = None
    id: int | str | None = None
    ts: Decimal | None = None


class ExactArrowStart(ExactArrow, gc=False, tag_field="ph", tag="s"):
    """Where an arrow starts."""


class ExactArrowEnd(ExactArrow, gc=False, tag_field="ph", tag="f"):
    """Where an arrow ends."""


# All other phases of the trace event format (Google, "Trace Event Format", 2016); they are skipped.
OTHER_PHASES: Final = "BEiICbnetPNODMRcvVa()STpF"
_OTHERS: Final = tuple(
    msgspec.defstruct(f"Phase{ord(phase)}", [], tag_field="ph", tag=phase, gc=False) for phase in OTHER_PHASES
)


def union_of(*types: Any) -> Any:
    """Return the list type that a decoder needs: these events, and the phases that are skipped."""
    return list[reduce(or_, (*types, *_OTHERS))]  # type: ignore[misc]  # a type made by calculation


SPANNING: Final = frozenset({"Trace", "Traces", "Spans"})  # rows of Kineto's own that span everything

# Today's spelling of categories that Kineto once wrote otherwise (its output_json.cpp of 2021), or that the profiler of
# another vendor writes for the same thing (ActivityType.cpp).
_CATEGORIES: Final = {
    "Operator": "cpu_op",
    "Runtime": "cuda_runtime",
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "User": "gpu_user_annotation",
    "gpu_user_Annotation": "gpu_user_annotation",
    "mtia_ccp_events": "kernel",
}
# What calls of any vendor's runtime and driver end with: xpu_runtime, privateuse1_driver, mtia_runtime, hip_runtime
_CALLS: Final = {"_runtime": "cuda_runtime", "_driver": "cuda_driver"}


def spell_category(raw: str) -> str:
    """Return today's spelling of a category, CUDA's for the calls of every vendor.

    >>> spell_category("xpu_runtime"), spell_category("Memcpy"), spell_category("cpu_op")
    ('cuda_runtime', 'gpu_memcpy', 'cpu_op')
    """
    call = next((name for ending, name in _CALLS.items() if raw.endswith(ending)), raw)
    return _CATEGORIES.get(call, call)


def is_other_runtimes(raw: str) -> bool:
    """Tell whether a category is of calls that drive neither CUDA nor HIP, whatever names they borrow.

    >>> is_other_runtimes("privateuse1_runtime"), is_other_runtimes("cuda_driver"), is_other_runtimes("kernel")
    (True, False, False)
    """
    return raw.endswith(tuple(_CALLS)) and not raw.startswith(("cuda_", "hip_"))


FORWARD_BACKWARD: Final = frozenset({"fwdbwd", "forward_backward"})
