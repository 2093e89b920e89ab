"""Why traced steps may not stand for others, each reason as a clause."""

from collections.abc import Sequence

from dtbench.base.units import count_things, format_ns, three_digits
from dtbench.runs.representative import LEAST_RATIO, MOST_RATIO, UNSURE, Doubt, DoubtKind


def name_doubt(doubts: Sequence[Doubt]) -> str:
    """Say how sure it is that steps stand for no others."""
    is_sure = any(one.kind not in UNSURE for one in doubts)
    return f"{'NOT' if is_sure else 'PERHAPS NOT'} REPRESENTATIVE"


def describe_doubt(doubt: Doubt) -> str:
    """Say one reason, as a clause."""
    where = "" if doubt.launch is None else f" (launch {doubt.launch})"
    return f"{_describe(doubt.kind, doubt.values)}{where}"


def _describe(kind: DoubtKind, values: Sequence[float]) -> str:
    match kind:
        case DoubtKind.DRIFT:
            way = "rises" if values[1] > values[0] else "falls"
            low, high = (format_ns(value) for value in sorted(values[:2]))
            return f"exposed communication {way} over {values[2]:.0f} steps, between {low} and {high}"
        case DoubtKind.REPEATED_NUMBER:
            if values[0] == 1:
                return "1 range carries the number of an earlier step, and is no step of its own"
            return f"{values[0]:.0f} ranges carry the number of an earlier step, and are no steps of their own"
        case (
            DoubtKind.ONE_STEP_UNLIKE
            | DoubtKind.TWO_STEPS_UNLIKE
            | DoubtKind.ONE_LAUNCH_UNLIKE
            | DoubtKind.TWO_LAUNCHES_UNLIKE
        ):
            return _describe_unlike(kind, values)
        case _:
            return _describe_phases(kind, values)


def _describe_phases(kind: DoubtKind, values: Sequence[float]) -> str:
    """Say in what PROFILED steps are not like MEASURED ones."""
    if kind is DoubtKind.UNCOMPARED:
        return "step times of MEASURED or of PROFILED steps are not known, so that nobody can compare them"
    if kind is DoubtKind.EXPOSED_BEYOND_STEP:
        return f"{format_ns(values[0])} exposed is more than a whole MEASURED step of {format_ns(values[1])}"
    if kind is DoubtKind.OTHER_TRAFFIC:
        rank, recorded, traced = map(round, values)
        issued = f"rank {rank} recorded {count_things(recorded, 'collective')} in each MEASURED step"
        return f"{issued}, and its trace has {traced} in a PROFILED one: some are lost, or other steps issue others"
    return f"PROFILED steps took {_ratio(values[0])} as long as MEASURED ones{_how_sure(kind, values[1:])}"


def _describe_unlike(kind: DoubtKind, values: Sequence[float]) -> str:
    """Say which steps, or whose, are unlike the others; of two, unlike each other."""
    others = {
        DoubtKind.TWO_STEPS_UNLIKE: f"step {values[1]:.0f}, and there is no third" if values[1:] else "",
        DoubtKind.TWO_LAUNCHES_UNLIKE: "those of the only other",
    }
    are_steps = kind in (DoubtKind.ONE_STEP_UNLIKE, DoubtKind.TWO_STEPS_UNLIKE)
    which = f"step {values[0]:.0f}" if are_steps else "PROFILED steps of one launch"
    return f"{which} took {_ratio(values[-1])} as long as {others.get(kind, 'the others')}"


def _how_sure(kind: DoubtKind, ends: Sequence[float]) -> str:
    if kind is DoubtKind.UNLIKE_MEASURED:
        return ""
    if not ends:
        return ", of too few steps to be sure"
    return f", which may be {_ratio(ends[0])} to {_ratio(ends[1])} ({LEAST_RATIO:g} to {MOST_RATIO:g} x is alike)"


def _ratio(value: float) -> str:
    return f"{value:,.0f} x" if value >= 1000 else f"{three_digits(value)} x"
