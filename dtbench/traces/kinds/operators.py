"""What operators and ranges of a CPU thread are, and which collective a name speaks of: the first rule that fits."""

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from dtbench.base.ranges import COLLECTIVE_PREFIX, TIMED_PREFIX, WAIT_PREFIX
from dtbench.base.vocabulary import Operation

RECORD: Final = "record_param_comms"
"""torch's record of a collective, or of a wait for one, that a library of a device carries out."""

# Operators that are, or contain, one collective: `nccl:all_reduce`, `record_param_comms`, `c10d::allreduce_`, ...
# `xccl:`, `hccl:` and the like are other vendors' `nccl:`.
_ISSUE: Final = re.compile(
    rf"c10d::|_?c10d_functional(_autograd)?::|[a-z]{{0,5}}ccl:(?!:)|{RECORD}|{COLLECTIVE_PREFIX}"
)


_BARE: Final = re.compile(r"\w+( \d+(->|<-)\d+)?")
ENGINE: Final = "autograd::engine::evaluate_function"
"""What the name of every node that autograd's engine runs begins with; then come a colon and the node's name."""


class Role(StrEnum):
    """What the innermost open span of a CPU thread means for that thread's time."""

    COMPUTE = "compute"
    COLLECTIVE = "collective"
    ISSUE = "issue"
    WAIT = "wait"
    CONTAINER = "container"


_CPU_RULES: Final[tuple[tuple[Callable[[str, str], object], Role], ...]] = (
    (lambda name, _: name.startswith("gloo:"), Role.COLLECTIVE),
    (lambda name, _: name.startswith(WAIT_PREFIX) or is_wait_tensor(name), Role.WAIT),
    (lambda name, _: is_issue(name), Role.ISSUE),
    (lambda name, _: name.startswith(TIMED_PREFIX), Role.COMPUTE),  # a sleep of known length is no operator
    (
        lambda _, category: category != "cpu_op",
        Role.CONTAINER,
    ),  # FSDP::*, Optimizer.*, ProfilerStep, user ranges, frames
    (lambda name, _: name.startswith(("autograd::", "torch::autograd::")), Role.CONTAINER),
    # DDP's own ranges around a gradient's copy (torch/csrc/distributed/c10d/reducer.cpp); the copy inside is an
    # operator
    (
        lambda name, _: name.startswith(("torch::distributed::reducer::", "torch.distributed.ddp.reducer::")),
        Role.CONTAINER,
    ),
    # autograd nodes and functions: MmBackward0, _ToTorchTensor, PythonSubclass; an operator has a namespace or is lower
    # case
    (lambda name, _: re.fullmatch(r"_?[A-Z]\w*", name), Role.CONTAINER),
    (lambda _name, _category: True, Role.COMPUTE),
)

# Operation by what the trace calls it: c10d::<op>_, gloo:<op>, nccl:<op>, "Collective name", kernel names. First match
# decides.
_OPERATIONS: Final[tuple[tuple[re.Pattern[str], Operation | None], ...]] = (
    (re.compile(r"reduce_?scatter", re.IGNORECASE), Operation.REDUCE_SCATTER),
    (re.compile(r"all_?gather", re.IGNORECASE), Operation.ALL_GATHER),
    (re.compile(r"all_?reduce", re.IGNORECASE), Operation.ALL_REDUCE),
    (re.compile(r"all_?to_?all", re.IGNORECASE), Operation.ALL_TO_ALL),
    (re.compile(r"send_?recv", re.IGNORECASE), None),  # NCCL's kernel for send, receive, all-to-all and gather alike
    (re.compile(r"broadcast", re.IGNORECASE), Operation.BROADCAST),
    (re.compile(r"barrier", re.IGNORECASE), Operation.BARRIER),
    (re.compile(r"reduce", re.IGNORECASE), Operation.REDUCE),
    (re.compile(r"gather", re.IGNORECASE), Operation.GATHER),
    (re.compile(r"scatter", re.IGNORECASE), Operation.SCATTER),
    (re.compile(r"recv|receive", re.IGNORECASE), Operation.RECV),
    (re.compile(r"send", re.IGNORECASE), Operation.SEND),
)


def is_issue(name: str) -> bool:
    """Tell whether an operator or range issues a collective.

    Of symmetric memory's operators those that name one: ``symm_mem::_async_input_mm`` is a matrix product.
    """
    if is_symmetric_memory(name):
        return find_operation(name) is not None
    return _ISSUE.match(name) is not None and not is_wait_tensor(name)


def is_wait_tensor(name: str) -> bool:
    """Tell whether an operator waits for what functional collectives give: for one tensor, or (torch 2.15) several."""
    return name.endswith(("c10d_functional::wait_tensor", "c10d_functional::wait_tensors"))


def is_symmetric_memory(name: str) -> bool:
    """Tell whether an operator works on torch's symmetric memory, which all ranks of a group can read and write."""
    return name.startswith("symm_mem::")


def find_operation(text: str) -> Operation | None:
    """Recognise a collective in the name of an operator, a range or a kernel; None: not by this name."""
    bare = text.replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    stem = re.split(r"[(<]", bare, maxsplit=1)[0]  # a signature or a template argument names no collective
    return next((operation for pattern, operation in _OPERATIONS if pattern.search(stem)), None)


def is_bare_operation(name: str) -> bool:
    """Tell whether a name is an operation's alone: ``all_reduce``, ``allGatherSingleImpl``, ``send 0->1``."""
    return _BARE.fullmatch(name) is not None and find_operation(name) is not None


def cpu_role(name: str, category: str) -> Role:
    """Return the role of an event on a CPU thread."""
    return next(role for fits, role in _CPU_RULES if fits(name, category))
