"""What ranks must tell of a training state: of every stage that is asked for, in its order, up to one that raised."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from dtbench.base.units import name_ranks
from dtbench.base.vocabulary import FILE_STAGES, Stage, StatePart
from dtbench.scenario.schema.state_dict import StateDict
from dtbench.store.records.rank import RankRecord
from dtbench.store.records.state import StageRecord, StateDictRecord, StateStepsRecord

Told = tuple[str, ...]
"""What a rank tells, below what it is a part of: who does not tell the whole is not asked for its parts."""

STAGES: Final[Told] = ("stages of the training state",)
_STEPS: Final[Told] = (*STAGES, "steps around a load and beside saves")
_TENSORS, _COLLECTIVES, _FILES, _BITS = "its tensors", "its collectives", "its files", "whether bits are equal"
_NOT_COMPARED: Final = (Stage.SAVE, Stage.FLATTEN)
"""``read`` compares what a ``save`` wrote; the state of an optimizer without tensors has none when it is flat."""


def ask_state(asked: StateDict) -> Iterator[Told]:
    """Yield what a scenario has every rank tell of its training state."""
    yield STAGES
    for name, stage in _list_stages(asked):
        yield name
        yield from (_name_part(name, what) for what in (_TENSORS, _COLLECTIVES))
        if stage in FILE_STAGES:
            yield _name_part(name, _FILES)
        if stage not in _NOT_COMPARED:
            yield _name_part(name, _BITS)
    if asked.steps:
        yield _STEPS


def tell_state(state: StateDictRecord | None) -> Iterator[Told]:
    """Yield what a rank tells of its training state."""
    if state is None:
        return
    if state.stages:
        yield STAGES
    for one in state.stages:
        name = _name(one.part, one.stage)
        yield name
        yield from (_name_part(name, what) for what, is_told in _find_told(one).items() if is_told)
    if state.steps is not None:
        yield _STEPS


def _find_told(one: StageRecord) -> dict[str, bool]:
    collectives = (one.traffic, one.traffic_is_stable, one.object_collectives, one.object_bytes)
    return {
        "host memory": one.memory is not None,
        _TENSORS: one.state_bytes is not None,
        _COLLECTIVES: None not in collectives,
        _FILES: one.file_bytes is not None,
        _BITS: one.mismatched is not None,
        "how long it was stalled": bool(one.wait_ns),
    }


def find_ends(ranks: Sequence[RankRecord]) -> frozenset[Told]:
    """Return the stages that raised on some rank of a launch: one at most, which was its last."""
    return frozenset(
        _name(one.part, one.stage) for rank in ranks for one in rank.extras.stages if one.raised is not None
    )


def comes_after(what: Told, ends: Collection[Told], asked: StateDict | None) -> bool:
    """Tell whether something of the training state, or of a stage that raised itself, was not done any more."""
    if what[:1] != STAGES or what == STAGES:
        return False
    return what not in ends and what[:2] not in _list_done(ends, asked)


def _list_done(ends: Collection[Told], asked: StateDict | None) -> list[Told]:
    """Return the stages before the one that raised; none where nobody says in which order they were to run."""
    names = [] if asked is None else [name for name, _ in _list_stages(asked)]
    last = max((place for place, name in enumerate(names) if name in ends), default=0)
    return [name for name in names[:last] if name not in ends]


def find_lost_rounds(asked: StateDict, ranks: Sequence[RankRecord]) -> Iterator[str]:
    """Say which ranks tell of fewer rounds of a stage than it went through: than others, where a stage raised later."""
    ends = find_ends(ranks)
    for name, _ in _list_stages(asked):
        rounds = {
            rank.rank: len(one.duration_ns)
            for rank in ranks
            for one in rank.extras.stages
            if _name(one.part, one.stage) == name and name not in ends
        }
        wanted = max(rounds.values(), default=0) if ends else asked.rounds
        yield from say_fewer(rounds, wanted, f"rounds of {name[-1]}")


def find_lost_steps(asked: StateDict, ranks: Sequence[RankRecord]) -> Iterator[str]:
    """Say which ranks tell of fewer steps around a load, or steps and saves beside each other, than were asked for."""
    in_turns = asked.rounds * asked.steps
    wanted: dict[str, tuple[Callable[[StateStepsRecord], Sequence[int]], int]] = {
        "steps before a load": (lambda one: one.before_ns, asked.steps),
        "steps after a load": (lambda one: one.after_ns, asked.steps - 1),
        "steps without a save": (lambda one: one.alone_ns, in_turns),
        "steps beside a save": (lambda one: one.beside_ns, in_turns),
        "calls of an asynchronous save": (lambda one: one.blocked_ns, asked.rounds),
        "ends of an asynchronous save": (lambda one: one.saved_ns, asked.rounds),
    }
    told = {rank.rank: state.steps for rank in ranks if (state := rank.extras.state_dict) is not None and state.steps}
    for what, (read, count) in wanted.items():
        yield from say_fewer({rank: len(read(steps)) for rank, steps in told.items()}, count, what)


def say_fewer(counts: Mapping[int, int], wanted: int, what: str) -> Iterator[str]:
    """Say which ranks tell of fewer than were wanted, fewest first; ``counts``: of how many each does."""
    by_count: dict[int, list[int]] = defaultdict(list)
    for rank, count in counts.items():
        by_count[count].append(rank)
    for count in sorted(count for count in by_count if count < wanted):
        silent = by_count[count]
        yield f"{name_ranks(silent)} {'tells' if len(silent) == 1 else 'tell'} of {count} of {wanted} {what}"


def _list_stages(asked: StateDict) -> list[tuple[Told, Stage]]:
    return [(_name(part, stage), stage) for part in asked.parts for stage in asked.find_stages(part)]


def _name(part: StatePart, stage: Stage) -> Told:
    return (*STAGES, f"the {stage} of the {part}")


def _name_part(name: Told, what: str) -> Told:
    return (*name, f"{name[-1]}: {what}")
