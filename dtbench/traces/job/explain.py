"""From single ranks' accounts to what only all of them together say: skew, causes, whose communication is exposed."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dtbench.base.vocabulary import GIVEN_BY_ROOT, POINT_TO_POINT, ROOTED, Cause, MissingInput
from dtbench.traces.causes.exposed_owners import ExplainedRank, ExposedOwner, rank_exposed_owners
from dtbench.traces.causes.lag import withhold_lag
from dtbench.traces.causes.split import CausePart, CauseSplit, leave_unknown, split_exposed
from dtbench.traces.causes.unwaited import withhold_unwaited
from dtbench.traces.job.chosen_steps import StepRange, choose_steps
from dtbench.traces.job.lacking_collectives import find_lacking_collectives
from dtbench.traces.job.lacking_ends import doubt_lacking, find_lacking_ends
from dtbench.traces.job.matched_owners import find_matched_owners, give_owners, note_matched_owners
from dtbench.traces.job.set_clocks import leave_out_cut, leave_out_settings, leave_out_unsure
from dtbench.traces.job.step_shifts import find_step_shifts, note_step_shifts, renumber_steps
from dtbench.traces.job.told_purposes import find_one_sided, find_told_purposes, give_purposes
from dtbench.traces.notes.note import join_ranks
from dtbench.traces.rank.analysis import TraceAnalysis
from dtbench.traces.ranks.late import LateRank, find_late_ranks
from dtbench.traces.ranks.misfits import Misfits
from dtbench.traces.ranks.over_ranks import OverRanks, compare_fitting_ranks
from dtbench.traces.ranks.point_to_point import Partner
from dtbench.traces.ranks.skew import CollectiveSkew
from dtbench.traces.who.collectives import Collective


@dataclass(frozen=True)
class Explained:
    """Several ranks' analyses with everything that was found over ranks.

    Attributes:
        analyses: as given, each with its ``skews`` and ``splits``.
        over_ranks: matches, clocks, stragglers, sends and receives.
        owners: whose communication is exposed and why, over all ranks, most exposed first.
        late_ranks: what those did that the others waited for longest.
    """

    analyses: tuple[TraceAnalysis, ...]
    over_ranks: OverRanks
    owners: tuple[ExposedOwner, ...]
    late_ranks: tuple[LateRank, ...] = ()


def explain(
    analyses: Sequence[TraceAnalysis], mistaken: Misfits | None = None, steps: StepRange | None = None
) -> Explained:
    """Match collectives over ranks and split every rank's exposed time into causes.

    Args:
        analyses: one per rank of one job; where ranks are missing, what needs them is unknown.
        mistaken: ranks that are known not to fit the others; None: none is.
        steps: which steps count; None: all.

    Raises:
        TraceError: there is no such step.
    """
    over_ranks = compare_fitting_ranks([one.timeline for one in analyses], mistaken)
    shifts = find_step_shifts(over_ranks.matches, [one.timeline for one in analyses])
    shifts = {rank: shift for rank, shift in shifts.items() if rank not in over_ranks.misfits.ranks}
    if shifts:
        analyses = [renumber_steps(one, shifts.get(one.rank, 0)) for one in analyses]
        over_ranks = compare_fitting_ranks([one.timeline for one in analyses], mistaken)
        over_ranks = replace(over_ranks, notes=(*note_step_shifts(shifts), *over_ranks.notes))
    told = find_told_purposes(over_ranks.matches, [one.timeline for one in analyses])
    if told:
        analyses = [give_purposes(one, told[one.rank]) if one.rank in told else one for one in analyses]
        notes = join_ranks(note for rank, of_rank in told.items() for note in of_rank.note(rank))
        over_ranks = replace(over_ranks, notes=(*over_ranks.notes, *notes))
    one_sided = find_one_sided(over_ranks.transfers, [one.timeline for one in analyses])
    analyses = [give_purposes(one, one_sided[one.rank]) if one.rank in one_sided else one for one in analyses]
    analyses, over_ranks = _match_owners(analyses, over_ranks)
    lacking = _find_lacking(analyses, over_ranks)
    analyses = [doubt_lacking(one, lacking[one.rank]) if one.rank in lacking else one for one in analyses]
    if steps is not None:
        analyses = choose_steps(analyses, steps)
        inside = compare_fitting_ranks([one.timeline for one in analyses], mistaken).waiting
        over_ranks = replace(over_ranks, waiting=replace(inside, outside=over_ranks.waiting.outside))
    set_in = over_ranks.clocks.astray.set_in
    analyses = [leave_out_unsure(one) for one in leave_out_cut(analyses)]
    analyses = [leave_out_settings(one, set_in.get(one.rank)) for one in analyses]
    job_size = max((one.timeline.told_size or 0 for one in analyses), default=0) or None
    explained = tuple(_explain_rank(one, over_ranks, job_size) for one in analyses)
    ranks = [
        ExplainedRank(
            timeline=one.timeline,
            splits=one.splits,
            last_ranks=[skew.last_rank for skew in one.skews],
            skew_waits_ns=[skew.skew_wait_ns for skew in one.skews],
            transfers_ns=[skew.transfer_ns for skew in one.skews],
            is_whole_known=one.whole.exposed_comm_ns is not None,
        )
        for one in explained
    ]
    any_steps = any(step.overlap.step_ns for one in explained for step in one.steps)
    hosts = {one.rank: one.host_steps for one in explained}
    return Explained(
        analyses=explained,
        over_ranks=over_ranks,
        owners=rank_exposed_owners(ranks, any_steps=any_steps),
        late_ranks=find_late_ranks(over_ranks, [one.timeline for one in explained], hosts),
    )


def _match_owners(analyses: Sequence[TraceAnalysis], over_ranks: OverRanks) -> tuple[list[TraceAnalysis], OverRanks]:
    """Return what ranks did together with one owner, and notes on whose name for it is another's."""
    if not over_ranks.is_one_job:
        return [*analyses], over_ranks
    owners = find_matched_owners(over_ranks.matches, [one.timeline for one in analyses])
    notes = join_ranks(note for one in analyses for note in note_matched_owners(one, owners.get(one.rank, {})))
    matched = [give_owners(one, owners[one.rank]) if one.rank in owners else one for one in analyses]
    return matched, replace(over_ranks, notes=(*over_ranks.notes, *notes))


def _find_lacking(analyses: Sequence[TraceAnalysis], over_ranks: OverRanks) -> dict[int, Counter[int]]:
    """Count what each rank's steps lack as other ranks show, by rank and number of step."""
    are_one_job = over_ranks.is_one_job
    strangers = over_ranks.misfits.ranks if are_one_job else {one.rank for one in analyses}
    found = [find_lacking_collectives(analyses, strangers=strangers)]
    found += [find_lacking_ends([one.timeline for one in analyses])] if are_one_job else []
    lacking = defaultdict[int, Counter[int]](Counter)
    for one in found:
        for rank, steps in one.items():
            lacking[rank].update(steps)
    return dict(lacking)


class _Seen(NamedTuple):
    """Collectives of a rank, by index: those that all others of their group have, and those of a group not told."""

    matched: set[int]
    ungrouped: set[int]


def _explain_rank(one: TraceAnalysis, over_ranks: OverRanks, job_size: int | None) -> TraceAnalysis:
    partners = over_ranks.partners.get(one.rank, {})
    skews = tuple(
        _wait_for(partner, skew) if (partner := partners.get(index)) else skew
        for index, skew in enumerate(over_ranks.collectives[one.rank])
    )
    last_starts_ns = [
        partner.start_ns if (partner := partners.get(index)) else skew.last_start_ns for index, skew in enumerate(skews)
    ]
    lags_ns = [skew.lag_ns for skew in skews]
    splits = withhold_lag(one.timeline, split_exposed(one.timeline, last_starts_ns), lags_ns)
    splits = withhold_unwaited(one.timeline, splits, last_starts_ns, lags_ns)
    splits = tuple(
        _leave_open(split, skew.untold_ns) if skew.untold_ns else split
        for split, skew in zip(splits, skews, strict=True)
    )
    if len(over_ranks.collectives) > 1:
        seen = _Seen(_find_matched(over_ranks, one.rank), _find_ungrouped(over_ranks, one))
        splits = tuple(
            split
            if start_ns is not None
            else _withhold(split, lack)
            if (lack := _find_lack(index, one, over_ranks, job_size, seen)) is not None
            else _ask_for_no_rank(split)
            if _are_there(collective, one, over_ranks, job_size)
            else split
            for index, (collective, start_ns, split) in enumerate(
                zip(one.collectives, last_starts_ns, splits, strict=True)
            )
        )
    return replace(one, skews=skews, splits=splits)


def _wait_for(partner: Partner, skew: CollectiveSkew) -> CollectiveSkew:
    """Return how long a send or receive waited, and for whom: of those nothing else is known."""
    return replace(skew, last_rank=partner.rank if partner.waited_ns else None, skew_wait_ns=partner.waited_ns)


def _find_matched(over_ranks: OverRanks, rank: int) -> set[int]:
    """Return what of a rank all others of its group have: its collectives, its sends and receives with both ends."""
    found = set()
    for group in over_ranks.matches.groups:
        if rank in group.ranks and group.is_complete:
            column = group.ranks.index(rank)
            found.update(group.index[group.there.all(axis=1), column].tolist())
    for one in over_ranks.transfers.matched:
        found.update(end for of, end in ((one.sender, one.send), (one.receiver, one.receive)) if of == rank)
    return found


def _find_ungrouped(over_ranks: OverRanks, one: TraceAnalysis) -> set[int]:
    """Return the collectives of a rank of which nothing tells for sure which ranks share their group."""
    if not over_ranks.matches.undecided:
        return set()
    groups = [group for group in over_ranks.matches.groups if group.is_complete and one.rank in group.ranks]
    grouped = {index for group in groups for index in group.index[:, group.ranks.index(one.rank)].tolist()}
    told = {
        index
        for index, collective in enumerate(one.collectives)
        if collective.group_ranks or collective.operation in POINT_TO_POINT
    }
    return set(range(len(one.collectives))) - grouped - told


def _find_lack(
    index: int, one: TraceAnalysis, over_ranks: OverRanks, job_size: int | None, seen: _Seen
) -> MissingInput | None:
    """Return what is missing of the other ranks of a collective, of which nobody knows when the last of them began.

    All its time may be waiting for that: where some ranks are there, and the last may not be among them, a cause that
    one rank alone would show is no more likely. None: it does not wait for other ranks. A job of which no trace tells
    how many ranks it has (``job_size`` is None) may have others.
    """
    collective, is_matched = one.collectives[index], index in seen.matched
    waits_for_nobody = (
        collective.group_size == 1 or (is_matched and _has_told_root(collective)) or _leaves_alone(collective, one)
    )
    if waits_for_nobody and collective.operation not in POINT_TO_POINT:
        return None
    if not _are_there(collective, one, over_ranks, job_size):
        return MissingInput.RANKS
    is_apart = bool(_members_of(collective, one, over_ranks) & over_ranks.clocks.out_of_step)
    if not is_apart and (collective.operation is None or (collective.operation in ROOTED and is_matched)):
        return MissingInput.WAITS
    if is_matched or is_apart:
        return MissingInput.CLOCKS
    return MissingInput.GROUP if index in seen.ungrouped else MissingInput.EVENTS


def _members_of(collective: Collective, one: TraceAnalysis, over_ranks: OverRanks) -> set[int]:
    """Return the ranks that take part as far as the traces say; all that fit where they do not."""
    if collective.operation in POINT_TO_POINT:
        return {one.rank, *(() if collective.peer is None else (collective.peer,))}
    return set(collective.group_ranks) or (set(over_ranks.collectives) - over_ranks.misfits.ranks) | {one.rank}


def _are_there(collective: Collective, one: TraceAnalysis, over_ranks: OverRanks, job_size: int | None) -> bool:
    """Tell whether no rank of a collective lacks its trace."""
    fitting = set(over_ranks.collectives) - over_ranks.misfits.ranks
    size = collective.group_size or one.timeline.world_size or job_size
    is_short = not collective.group_ranks and (size is None or size > len(fitting))
    is_sent = collective.operation in POINT_TO_POINT
    return _members_of(collective, one, over_ranks) <= fitting and (is_sent or not is_short)


def _ask_for_no_rank(split: CauseSplit) -> CauseSplit:
    """Return the causes where all ranks are there: where nothing else is missing, when they began is."""
    return CauseSplit(tuple(_swap_ranks(part) if MissingInput.RANKS in part.missing else part for part in split.parts))


def _swap_ranks(part: CausePart) -> CausePart:
    lacking_ns = {one: part.lacking_ns(one) for one in part.missing}
    ranks_ns = lacking_ns.pop(MissingInput.RANKS)
    if max(lacking_ns.values(), default=0) < ranks_ns:
        lacking_ns[MissingInput.EVENTS] = ranks_ns
    return leave_unknown(part.exposed_ns, lacking_ns)


def _has_told_root(collective: Collective) -> bool:
    """Tell whether a root is named: what waits for it or for the others, the ranks together have shown."""
    return collective.operation in ROOTED and collective.root is not None


def _leaves_alone(collective: Collective, one: TraceAnalysis) -> bool:
    """Tell whether a rank surely waits for nobody: it gives to the others as root, or gives its part to the root."""
    if not _has_told_root(collective) or collective.root is None or collective.root >= len(collective.group_ranks):
        return False
    is_root = collective.group_ranks[collective.root] == one.rank
    return is_root == (collective.operation in GIVEN_BY_ROOT)


def _leave_open(split: CauseSplit, untold_ns: int) -> CauseSplit:
    """Leave open for whom was waited, as far as the last rank may have handed on a delay that nobody saw."""
    open_ns = min(split.by_cause.get(Cause.SKEW, 0), untold_ns)
    kept: list[CausePart] = []
    unknown_ns, lacking_ns = open_ns, {MissingInput.LATENESS: open_ns}
    for part in split.parts:
        if part.cause is Cause.UNKNOWN and open_ns:
            unknown_ns += part.exposed_ns
            lacking_ns |= {one: part.lacking_ns(one) for one in part.missing}
        elif part.cause is not Cause.SKEW or part.exposed_ns > open_ns:
            kept.append(replace(part, exposed_ns=part.exposed_ns - open_ns) if part.cause is Cause.SKEW else part)
    return CauseSplit((*kept, leave_unknown(unknown_ns, lacking_ns)) if open_ns else split.parts)


def _withhold(split: CauseSplit, lack: MissingInput) -> CauseSplit:
    """Leave open why a collective is exposed."""
    exposed_ns = sum(part.exposed_ns for part in split.parts)
    return CauseSplit((CausePart(Cause.UNKNOWN, exposed_ns, missing=(lack,)),) if split.parts else ())
