"""From what a person names to the answer: sides are read, refused where they are unlike, and compared."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dtbench.base.errors import ComparisonError
from dtbench.base.units import count_things
from dtbench.comparison.changes import MOST_OWNERS, compare_metrics
from dtbench.comparison.collectives import find_collective_changes
from dtbench.comparison.comparison import (
    CollectiveChange,
    Comparison,
    MetricChange,
    Outcome,
    Side,
)
from dtbench.comparison.kernels import KernelFindings, find_kernel_changes
from dtbench.comparison.machines import find_machine_changes
from dtbench.comparison.mechanism import find_mechanism
from dtbench.comparison.metrics import EXPOSED, EXPOSED_BY_OWNER, STEP_TIME
from dtbench.comparison.reading.parts import (
    are_of_other_ranks,
    find_unlike_ranks,
    may_lack_slowest,
    name_parts,
    say_counted_steps,
    say_ranks,
    say_shared_part,
    say_unlike_ranks,
)
from dtbench.comparison.reading.renamed import find_renamed, rename_owners, say_misnamed, say_renamed
from dtbench.comparison.reading.rounds import Rounds, arrange, find_copy
from dtbench.comparison.reading.seen import find_not_known, say_not_known
from dtbench.comparison.reading.settings import find_treatment
from dtbench.comparison.reading.sides import ONLY, Sides, is_saved, read_sides
from dtbench.comparison.reading.untold import say_untold
from dtbench.comparison.sentence import Findings, write_clauses
from dtbench.comparison.statistics import noise_floor
from dtbench.comparison.telling import say_silent
from dtbench.comparison.torch_defaults import say_new_defaults
from dtbench.runs.environments import (
    NOT_KNOWN_WHERE,
    EnvironmentChange,
    find_environment_changes,
    find_unlike,
    say_of_class,
)
from dtbench.runs.told_apart import LEAST_LAUNCHES
from dtbench.scenario.mistakes import join_words
from dtbench.scenario.sweeps.sweep import name_some
from dtbench.store.records.baseline import MeasuredSide
from dtbench.store.records.run import Environment
from dtbench.traces.reader.header import PROFILERS

THRESHOLD: Final = 0.01
"""Relative changes below it do not matter to most people."""

_NO_FINDING: Final = "what was exposed there, and why, is no finding"


def compare_paths(
    baseline: str, candidate: str, *, results: Path, force: bool = False, threshold: float = THRESHOLD
) -> Comparison:
    """Compare two things, each named as ``sides.py`` says.

    Args:
        baseline: what to compare with.
        candidate: what is compared.
        results: folder of all runs and baselines.
        force: compare although environments differ; a note names in what.
        threshold: relative changes below it do not matter.

    Raises:
        ComparisonError: they are of several cells, of unlike environments, or of nothing that can be compared.
        StoreError: there is no such thing, or a file of it is broken or of another version.
        TraceError: they are traces, and none can be read.
    """
    found = compare_all([baseline, candidate], results=results, force=force, threshold=threshold)
    if len(found) > 1:
        raise ComparisonError(
            f"`{baseline}` and `{candidate}` have {len(found)} cells in common; name one: "
            f"`{candidate}:{_cell_of(found[0].candidate)}`"
        )
    return found[0]


def _cell_of(side: Side) -> str:
    return Path(side.paths[0]).name


def compare_all(
    named: Sequence[str],
    *,
    results: Path,
    force: bool = False,
    threshold: float = THRESHOLD,
    asked: Collection[str] = (),
) -> tuple[Comparison, ...]:
    """Compare every other with the first; of one run alone, its cells with its first; raises as ``compare_paths``.

    Arguments as ``compare_paths``; the owners that are ``asked`` for are tested beside those with most exposed time.

    Two runs of several cells are compared cell by cell. A cell that has nothing to trust, or that only one of them has,
    is left out and named where others can be compared.
    """
    if not 0 <= threshold < math.inf:
        raise ComparisonError(f"the threshold is {threshold:g}; give an ordinary number of at least 0")
    unpaired: list[str] = []
    if len(named) == 1:
        pairs = _pair_cells(named[0], read_sides(named[0], results, force=force))
    else:
        sides = {one: read_sides(one, results, force=force) for one in named}
        first, *others = ((one, sides[one]) for one in named)
        pairs = [pair for other in others for pair in _pair(first, other)]
        unpaired = [words for other in others for words in _say_unpaired(first, other)]
    usable = [pair for pair in pairs if all(side.launches for side in pair)]
    found = tuple(
        compare_sides(before, after, force=force, threshold=threshold, asked=asked) for before, after in usable or pairs
    )
    lacking = [pair for pair in pairs if not all(side.launches for side in pair)]
    left_out = tuple(dict.fromkeys((*unpaired, *(_say_left_out(pair) for pair in lacking))))
    return tuple(one.model_copy(update={"left_out": left_out}) for one in found)


def _pair_cells(named: str, sides: Sides) -> list[tuple[MeasuredSide, MeasuredSide]]:
    """Pair the first cell of a run with each other one."""
    if not sides:
        raise ComparisonError(f"`{named}` has no cells, so there is nothing to compare")
    first, *others = sides.values()
    if not others:
        raise ComparisonError(f"`{named}` is one thing; name a second one to compare it with")
    return [(first, other) for other in others]


def _say_left_out(pair: tuple[MeasuredSide, MeasuredSide]) -> str:
    labels = _tell_apart(*pair)
    return next(_say_untrusted(side, label) for side, label in zip(pair, labels, strict=True) if not side.launches)


def _say_untrusted(side: MeasuredSide, label: str) -> str:
    why = f": {'; '.join(side.notes)}" if side.notes else ""
    return f"{label} has no launch that is complete and can be trusted{why}"


def _pair(first: tuple[str, Sides], second: tuple[str, Sides]) -> list[tuple[MeasuredSide, MeasuredSide]]:
    """Pair the only things of both, else cells of equal names.

    Raises:
        ComparisonError: one has several cells, and nobody says which.
    """
    (_, before), (_, after) = first, second
    for name, sides in (first, second):
        if not sides:
            raise ComparisonError(f"`{name}` has no cells, so there is nothing to compare")
    if len(before) == len(after) == 1:
        return [(next(iter(before.values())), next(iter(after.values())))]
    shared = [name for name in before if name in after and name != ONLY]
    if shared and min(len(before), len(after)) > 1:
        return [(before[name], after[name]) for name in shared]
    named, sides = max(first, second, key=lambda one: len(one[1]))
    cells = [name for name in sides if name != ONLY]
    raise ComparisonError(f"`{named}` has several cells, {name_some(cells)}; say which: `{named}:{cells[0]}`")


def _say_unpaired(first: tuple[str, Sides], second: tuple[str, Sides]) -> Iterator[str]:
    """Say which cells only one of two things of several cells has, so that they are compared with nothing."""
    if len(first[1]) == len(second[1]) == 1:
        return
    for (name, sides), (other, others) in ((first, second), (second, first)):
        alone = [cell for cell in sides if cell not in others]
        if alone:
            yield f"{name} has {count_things(len(alone), 'cell')} that {other} has not: {name_some(alone)}"


def compare_sides(
    baseline: MeasuredSide,
    candidate: MeasuredSide,
    *,
    force: bool = False,
    threshold: float = THRESHOLD,
    asked: Collection[str] = (),
) -> Comparison:
    """Compare two sides.

    Raises:
        ComparisonError: they are of unlike environments and nobody insists, share launches, or one has none to trust.
    """
    labels = _tell_apart(baseline, candidate)
    _refuse_nothing(baseline, candidate, labels)
    treatment = find_treatment(baseline.settings, candidate.settings)
    environment = (
        *find_environment_changes(
            baseline.environment,
            candidate.environment,
            {change.field for change in treatment},
            (baseline.settings, candidate.settings),
        ),
        *find_machine_changes(baseline.machine, candidate.machine),
    )
    unlike = _find_unlike((baseline, candidate), labels, environment)
    if unlike and not force:
        raise ComparisonError(_refuse_unlike(labels, unlike))
    renamed = find_renamed(baseline, candidate)
    sides = (baseline, rename_owners(candidate, renamed))
    rounds = arrange(*(side.launches for side in sides))
    seen = _find_seen(sides, labels)
    metrics = compare_metrics(
        rounds,
        threshold,
        asked,
        is_doubted=any(side.doubts for side in sides),
        is_part=bool(seen.parts),
        may_lack_slowest=may_lack_slowest(sides),
    )
    mechanism = find_mechanism(*sides, labels, seen.not_seen)
    kernels = _compare_kernels(sides, labels, seen, threshold)
    first, second = (_describe_side(side, label, rounds) for side, label in zip(sides, labels, strict=True))
    findings = Findings(
        baseline=first,
        candidate=second,
        are_traces=all(side.settings is None for side in sides),
        threshold=threshold,
        mechanism=() if mechanism.doubts else mechanism.changes,
        metrics=metrics,
        parts=seen.parts,
        doubted=[label for side, label in zip(sides, labels, strict=True) if side.doubts],
        collectives=_compare_collectives(sides, seen),
    )
    where = [f"{one}: whether environments are alike is not checked" for one in _say_where_not_known(sides, labels)]
    lead, *others = write_clauses(findings)
    of_what = (*seen.step_parts, *say_shared_part(sides), *say_counted_steps(sides, labels))
    clauses = (lead, *of_what, *where, *others)
    return Comparison(
        baseline=first,
        candidate=second,
        sentence="; ".join(clauses),
        clauses=clauses,
        threshold=threshold,
        noise_floor=_find_noise(metrics),
        environment=environment,
        mechanism=mechanism.changes,
        metrics=metrics,
        collectives=tuple(findings.collectives),
        kernels=kernels.changes,
        kernels_left_out=kernels.left_out,
        kernels_not_compared=kernels.not_compared,
        notes=(
            *_note_unlike(unlike),
            *_note_class(sides, environment),
            *say_new_defaults(sides),
            *_note_unknown(sides, labels),
            *say_renamed(renamed, labels),
            *say_misnamed(sides, labels),
            *seen.not_seen,
            *seen.of_ranks,
            *mechanism.notes,
            *_note_statistics(rounds, sides, metrics),
            *_note_noise(metrics, rounds),
            *_label_notes(sides, labels),
        ),
        treatment=treatment,
        is_mechanism_known=mechanism.is_known,
        mechanism_not_known=mechanism.not_known,
        mechanism_doubts=mechanism.doubts,
        doubts=tuple(f"{label}: {doubt}" for side, label in zip(sides, labels, strict=True) for doubt in side.doubts),
        not_known=find_not_known(sides),
        environment_not_known=tuple(_say_where_not_known(sides, labels)),
    )


@dataclass(frozen=True)
class _Seen:
    """What keeps numbers of two sides from being of the same thing: parts and ranks that one of them has not.

    Attributes:
        not_seen: why what their traces tell cannot be compared, a clause each.
        of_ranks: of which ranks numbers are that are not compared for it, a clause each.
        unlike_ranks: those numbers, metric and subject.
    """

    not_seen: tuple[str, ...]
    of_ranks: tuple[str, ...]
    unlike_ranks: frozenset[tuple[str, str]]

    @property
    def parts(self) -> tuple[str, ...]:
        """Why what is exposed cannot be compared; none: it can."""
        return (*self.not_seen, *(self.of_ranks if (EXPOSED, "") in self.unlike_ranks else ()))

    @property
    def step_parts(self) -> tuple[str, ...]:
        """Why step times cannot be compared, where ``parts`` do not say it."""
        return self.of_ranks if (STEP_TIME, "") in self.unlike_ranks and not self.parts else ()


def _find_seen(sides: Sequence[MeasuredSide], labels: Sequence[str]) -> _Seen:
    return _Seen(
        not_seen=name_parts(sides, labels),
        of_ranks=tuple(say_unlike_ranks(sides, labels)),
        unlike_ranks=find_unlike_ranks(launch for side in sides for launch in side.launches),
    )


def _compare_collectives(sides: tuple[MeasuredSide, MeasuredSide], seen: _Seen) -> list[CollectiveChange]:
    """Return what changed in collectives, of owners that both sides saw on the same ranks."""
    if seen.parts:
        return []
    changes = find_collective_changes(*(side.launches for side in sides))
    return [one for one in changes if (EXPOSED_BY_OWNER, one.owner) not in seen.unlike_ranks]


def _compare_kernels(
    sides: tuple[MeasuredSide, MeasuredSide], labels: Sequence[str], seen: _Seen, threshold: float
) -> KernelFindings:
    """Return what changed in compute kernels, of traces of the same ranks of which nothing is lost; runs tell none."""
    if any(side.settings is not None for side in sides):
        return KernelFindings()
    if seen.parts:
        ranks = "; dtbench analyze FOLDER compares the ranks of one job" if are_of_other_ranks(*sides) else ""
        return KernelFindings(not_compared=f"compute kernels are not compared: {'; '.join(seen.parts)}{ranks}")
    before, after = sides
    is_doubted = any(side.doubts for side in sides)
    return find_kernel_changes(before.launches, after.launches, labels, threshold, is_doubted=is_doubted)


def _describe_side(side: MeasuredSide, label: str, rounds: Rounds) -> Side:
    return Side(
        label=label,
        paths=side.paths,
        launches=len(side.launches),
        is_interleaved=rounds.are_interleaved,
        left_out=side.left_out,
        origins=side.origins,
        torch="" if side.environment is None else side.environment.torch,
        machine="" if side.environment is None else _name_machine(side.environment),
    )


def _name_machine(environment: Environment) -> str:
    counts = Counter(device.name for device in environment.devices)
    devices = [f"{count} x {name}" if count > 1 else name for name, count in counts.items()]
    cores = count_things(environment.cores, "core")
    return ", ".join([environment.host, f"{environment.processor} ({cores})", *devices])


def _find_unlike(
    sides: Sequence[MeasuredSide], labels: Sequence[str], environment: Sequence[EnvironmentChange]
) -> list[str]:
    """Say in what environments are unlike, between the sides and inside each."""
    within = (f"within {label}, {words}" for side, label in zip(sides, labels, strict=True) for words in side.unlike)
    return [*_spell_unlike(find_unlike(environment)), *within]


def _label_notes(sides: Sequence[MeasuredSide], labels: Sequence[str]) -> Iterator[str]:
    """Yield what a reader must know of each side, with its label; of both, what is of both."""
    notes = [dict.fromkeys((*_say_limits(side, sides), *side.notes, *side.plan_notes)) for side in sides]
    for own, label in zip(notes, labels, strict=True):
        yield from (f"{label}: {note}" for note in own if not all(note in of_side for of_side in notes))
    yield from (f"both: {note}" for note in notes[0] if note in notes[1])


def _say_limits(side: MeasuredSide, sides: Sequence[MeasuredSide]) -> Iterator[str]:
    """Say what is not known of a side, one of these, or is no finding."""
    yield from say_ranks(side)
    yield from say_not_known(side)
    yield from say_untold(side, sides)
    if side.silent and side.environment is not None:
        yield f"{NOT_KNOWN_WHERE} {', '.join(side.silent)} ran"
    yield from say_silent(side, sides)
    yield from (f"{doubt}; {_NO_FINDING}" for doubt in side.doubts)


def _tell_apart(baseline: MeasuredSide, candidate: MeasuredSide) -> tuple[str, str]:
    """Return the shortest labels that differ."""
    longest = max(len(baseline.labels), len(candidate.labels))
    pairs = [
        (baseline.labels[min(place, len(baseline.labels) - 1)], candidate.labels[min(place, len(candidate.labels) - 1)])
        for place in range(longest)
    ]
    return next((pair for pair in pairs if pair[0] != pair[1]), pairs[-1])


def _refuse_nothing(baseline: MeasuredSide, candidate: MeasuredSide, labels: tuple[str, str]) -> None:
    shared = sorted(set(baseline.paths) & set(candidate.paths))
    shared_launch = find_copy(baseline.launches, candidate.launches)
    if shared_launch is not None and not shared:
        copy, original = (launch.round for launch in shared_launch)
        which = copy if copy == original else f"{copy}, a copy of {original},"
        raise ComparisonError(
            f"{labels[0]} and {labels[1]} are copies of one measurement ({which} started at the same time on both "
            "sides); a thing is not compared with itself"
        )
    if shared:
        saved = [side.labels[0] for side in (baseline, candidate) if is_saved(side)]
        again = f": `{saved[0]}` was saved from it, so run the scenario again" if saved else ""
        raise ComparisonError(f"{shared[0]} is on both sides{again}; a thing is not compared with itself")
    for side, label in zip((baseline, candidate), labels, strict=True):
        if not side.launches:
            raise ComparisonError(_say_untrusted(side, label))


def _refuse_unlike(labels: tuple[str, str], unlike: Sequence[str]) -> str:
    return (
        f"{labels[0]} and {labels[1]} were measured in unlike environments: {'; '.join(unlike)}. Measure both in one, "
        "or compare them all the same with --force (force=True)"
    )


def _spell_unlike(changes: Sequence[EnvironmentChange]) -> list[str]:
    return [f"{change.what} {change.baseline} against {change.candidate}" for change in changes]


def _note_unlike(unlike: Sequence[str]) -> list[str]:
    if not unlike:
        return []
    return [f"WARNING: unlike environments, so any difference may be theirs: {'; '.join(unlike)}"]


def _note_class(sides: Sequence[MeasuredSide], environment: Sequence[EnvironmentChange]) -> Iterator[str]:
    """Say what a runner class made alike."""
    first = sides[0].environment
    said = None if first is None else say_of_class(environment, first.runner_class)
    if said is not None:
        yield said


def _note_unknown(sides: Sequence[MeasuredSide], labels: Sequence[str]) -> list[str]:
    silent = [label for side, label in zip(sides, labels, strict=True) if side.environment is None]
    if not silent:
        return []
    told = [name for name in sides[0].machine if name in sides[1].machine and not name.startswith(PROFILERS)]
    both = [f"{name}{_say_silent_ranks(name, sides, labels)}" for name in told]
    if len(silent) == len(sides) and both:
        of = f"of where {' and '.join(silent)} ran, both traces tell only {join_words(both, 'and')}"
        return [f"{of}; whether anything else is alike is not checked"]
    return [(f"{NOT_KNOWN_WHERE} {' and '.join(silent)} ran; whether they are alike is not checked")]


def _say_where_not_known(sides: Sequence[MeasuredSide], labels: Sequence[str]) -> Iterator[str]:
    """Say of which sides or launches of runs it is not known where they ran; traces never tell all of it."""
    for side, label in zip(sides, labels, strict=True):
        if side.settings is not None and side.environment is None:
            yield f"{NOT_KNOWN_WHERE} {label} ran"
        elif side.silent:
            yield f"{NOT_KNOWN_WHERE} {', '.join(side.silent)} of {label} ran"


def _say_silent_ranks(name: str, sides: Sequence[MeasuredSide], labels: Sequence[str]) -> str:
    """Say how many ranks of each side do not tell what others do; empty: all tell it."""
    words = [
        f"{side.machine[name].count('')} of {len(side.machine[name])} ranks of {label}"
        for side, label in zip(sides, labels, strict=True)
        if "" in side.machine[name]
    ]
    return f" (not of {join_words(words, 'and')})" if words else ""


def _note_statistics(rounds: Rounds, sides: Sequence[MeasuredSide], metrics: Sequence[MetricChange]) -> list[str]:
    notes: list[str] = []
    if min(len(side.launches) for side in sides) < LEAST_LAUNCHES:
        return notes  # nothing is tested
    if not rounds.are_interleaved:
        notes.append(
            "the launches did not take turns, so a drift of the machine between the sides counts as a difference; "
            "cells of one scenario do"
        )
    owners = {row.owner for side in sides for launch in side.launches for row in launch.owned if row.owner}
    tested = [change.subject for change in metrics if change.metric == EXPOSED_BY_OWNER]
    if len(owners) > len(tested):
        asked = f" and {name_some(tested[MOST_OWNERS:])}" if len(tested) > MOST_OWNERS else ""
        notes.append(f"of {len(owners)} owners, the {MOST_OWNERS} with most exposed time{asked} were tested")
    return notes


def _note_noise(metrics: Sequence[MetricChange], rounds: Rounds) -> list[str]:
    """Warn of a difference that is no larger than what a side differs from itself; within rounds, a drift cancels."""
    step, floor = metrics[0], _find_noise(metrics)
    if rounds.are_interleaved or step.outcome not in (Outcome.HIGHER, Outcome.LOWER):
        return []
    if not max(step.ratio, 1 / step.ratio) - 1 < floor:
        return []
    return ["the step times differ by less than halves of one side do (the noise floor): take more launches to be sure"]


def _find_noise(metrics: Sequence[MetricChange]) -> float:
    step = next(change for change in metrics if change.metric == STEP_TIME)
    floors = [noise_floor(sample.values) for sample in (step.baseline, step.candidate)]
    return max((floor for floor in floors if not math.isnan(floor)), default=math.nan)
