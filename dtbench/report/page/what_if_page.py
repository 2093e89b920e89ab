"""What would change it, as a page: what each change would save, what the steps consist of, how far to trust it."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from dtbench.base.columns import Unit
from dtbench.base.units import count_things, format_fraction, format_ns, is_or_are, name_steps
from dtbench.replay.changes.apart import Apart
from dtbench.replay.changes.change import Change, ChangeKind, Owner
from dtbench.replay.changes.hidden import Hidden
from dtbench.replay.changes.host import HostTime
from dtbench.replay.changes.kernel import Kernel
from dtbench.replay.link_fit import LinkFit
from dtbench.replay.what_if import Answer, WhatIf
from dtbench.report.page.page import Cell, Column, Fact, Facts, Line, Page, Part, Row, Table, Tone, lines, numbers
from dtbench.report.page.settings_part import (
    LEAST,
    NO_SETTINGS,
    Settings,
    say_not_asked,
    settings_lines,
    settings_notes,
    settings_part,
)
from dtbench.report.words.causes import name_collective, name_operation

_MOST_ROWS: Final = 8
_FEWEST_ROWS: Final = 3
_MOST_OWNERS: Final = 3
_STANDS_FOR: Final[Mapping[ChangeKind, str]] = {
    ChangeKind.HIDDEN: "the bound of any remedy",
    ChangeKind.LINK: "faster network, or fewer bytes",
    ChangeKind.APART: "a process group of its own",
    ChangeKind.LATENCY: "fewer or closer hops",
    ChangeKind.BANDWIDTH: "wider links, or fewer bytes",
    ChangeKind.STRAGGLER: "equal work on all ranks",
    ChangeKind.OVERLAP_TAX: "copy engines, fewer SMs for it",
    ChangeKind.HOST: "bound of CUDA graphs, compiling",
    ChangeKind.KERNEL: "another kernel",
}


def what_if_page(
    title: str,
    cells: Mapping[str, WhatIf],
    refused: Mapping[str, str],
    doubts: Mapping[str, str],
    settings: Settings = NO_SETTINGS,
    remarks: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Page:
    """Make the page.

    Args:
        title: of what.
        cells: what would change each; a name is empty where there is but one.
        refused: by name, why no replay says anything of others.
        doubts: by name, what speaks against the steps of some.
        settings: of a run, what other settings would do.
        remarks: by name, what the traces that are replayed leave out, or may count wrongly.
    """
    several = len({*cells, *settings.cells}) > 1
    answer = [
        line
        for name, one in cells.items()
        for line in _answer_lines(one, f"{name}: " * (several and bool(name)), doubts.get(name))
    ]
    for name, forecast in settings.cells.items():
        answer += settings_lines(forecast, f"{name}: " * several)
    return Page(
        title="What would change it",
        aside=title,
        answer=tuple(answer),
        parts=(
            *(_part(name, one) for name, one in cells.items()),
            *(settings_part(name, one, several=several) for name, one in settings.cells.items()),
        ),
        notes=(
            *lines(spell_left_out(refused, remarks), Tone.WARNING),
            *lines([*_notes(cells), *settings_notes(settings)], Tone.QUIET),
        ),
    )


def spell_left_out(refused: Mapping[str, str], remarks: Mapping[str, Sequence[str]]) -> list[str]:
    """Say what no replay speaks of: cells and launches, then what is not in the traces of the others.

    Args:
        refused: by name, why not.
        remarks: by name, what the traces that are replayed leave out, or may count wrongly.
    """
    of_cells = [(name, remark) for name, every in remarks.items() for remark in every]
    return [f"{name}: {why}" if name else why for name, why in (*refused.items(), *of_cells)]


def name_change(change: Change) -> str:
    """Spell a change as a clause."""
    times = change.name.rpartition("x")[2]
    match change:
        case Hidden():
            words = f"{_name_hidden(change)} takes no time"
        case HostTime():
            words = f"hosts take {times} times as long" if change.times else "hosts take no time"
        case Apart(label=label):
            words = f"those of {label} stand in no queue with others"
        case Kernel(text=text):
            words = f"kernels `{text}` are {times} times as fast"
        case _:
            words = _SPELLED[change.kind].format(times=times)
    return words


_SPELLED: Final = {
    ChangeKind.LINK: "all links are {times} times as fast",
    ChangeKind.LATENCY: "links have {times} times the latency",
    ChangeKind.BANDWIDTH: "links have {times} times the bandwidth",
    ChangeKind.STRAGGLER: "no rank is behind the others",
    ChangeKind.OVERLAP_TAX: "kernels beside communication take what they take alone",
}


def _name_hidden(change: Hidden) -> str:
    if change.owners is None:
        return "all communication"
    return _name_owner(change.owners[0]) if len(change.owners) == 1 else f"all of {change.label}"


def _name_owner(owner: Owner) -> str:
    return name_collective(owner.name, owner.operation)


def _answer_lines(one: WhatIf, lead: str, doubt: str | None) -> list[Line]:
    """Say what saves most, and what hiding all communication would; what speaks against the steps comes first."""
    if doubt is not None:
        return [
            Line(f"{lead}{doubt}", Tone.WARNING),
            *(Line(line.words) for line in _answer_lines(one, f"{lead}of these steps: ", None)),
        ]
    if not one.answers:
        return [Line(f"{lead}there is nothing that may be changed: no communication is in these steps.", Tone.STRONG)]
    best = one.answers[0]
    if best.saving_ns <= -LEAST * one.step_ns:
        return [
            Line(
                f"{lead}nothing of that helps: {_name_step(one)} is at least {format_ns(-best.saving_ns)} longer, "
                f"where {name_change(best.change)}{_say_off(best)}.",
                Tone.STRONG,
            )
        ]
    if best.saving_ns < LEAST * one.step_ns:
        return [
            Line(
                f"{lead}nothing helps by more than {format_fraction(LEAST)} of {_name_step(one)}; "
                f"the most is {format_ns(max(0.0, best.saving_ns))}, where {name_change(best.change)}{_say_off(best)}.",
                Tone.STRONG,
            )
        ]
    said = [
        Line(
            f"{lead}most is saved where {name_change(best.change)}: {_saving(best, one)} of {_name_step(one)}"
            f"{_say_off(best)}.",
            Tone.STRONG,
        )
    ]
    everything = next((answer for answer in one.answers if answer.change == Hidden()), None)
    if everything is not None and everything is not best:
        said.append(
            Line(
                f"{lead}no remedy for what communication itself takes saves more than {_saving(everything, one)}"
                f"{_say_off(everything)}{_say_waiting(one)}."
            )
        )
    return said


def _say_off(answer: Answer) -> str:
    """Say by how much the replay of the unchanged steps is off, where that is not small beside what is saved."""
    return f", give or take the {format_ns(answer.off_ns)} by which the replay is off" * answer.is_off


def _say_waiting(one: WhatIf) -> str:
    if one.missing != 0:
        return "; what is waited for ranks that are not here is in that"
    if one.unmatched:
        return "; so may be what ranks wait for each other"
    return "; what ranks wait for each other is not in that" if one.ranks > 1 else ""


def _name_step(one: WhatIf) -> str:
    return f"a step of {format_ns(one.step_ns)}{' on the slowest rank' if one.ranks > 1 else ''}"


def _saving(answer: Answer, one: WhatIf) -> str:
    return f"{format_ns(max(0.0, answer.saving_ns))} ({format_fraction(max(0.0, answer.saving_ns) / one.step_ns)})"


def _part(name: str, one: WhatIf) -> Part:
    return Part(f"cell:{name}" if name else "changes", "", (_changes(name, one), _facts(one)))


def _changes(name: str, one: WhatIf) -> Table:
    helping = [answer for answer in one.answers if answer.saving_ns >= LEAST * one.step_ns]
    shown = max(len(helping[:_MOST_ROWS]), min(_FEWEST_ROWS, len(one.answers)))
    each = "" if len(helping) > shown else f", below {format_fraction(LEAST)} of a step each"
    off = " (± what the replay is off by)" * any(answer.is_off for answer in one.answers)
    return Table(
        f"{name}: what each change would save{off}" if name else f"what each change would save{off}",
        (
            Column("change"),
            *numbers(Unit.NS, "saves\na step"),
            *numbers(Unit.FRACTION, "of\nstep"),
            Column("least to most"),
            *numbers(Unit.NS, "time of\nits own"),
            Column("stands for"),
        ),
        [_row(answer, one) for answer in one.answers],
        key="changes",
        first=shown,
        more=f"less is saved by {count_things(len(one.answers) - shown, 'more change')}{each}: --json has all",
    )


def _row(answer: Answer, one: WhatIf) -> Row:
    saving_ns = answer.saving_ns
    off = f" ± {format_ns(answer.off_ns)}" * answer.is_off
    return (
        name_change(answer.change),
        Cell(f"{format_ns(saving_ns)}{off}", value=saving_ns),
        Cell(format_fraction(saving_ns / one.step_ns), value=saving_ns / one.step_ns),
        "" if one.steps == 1 else f"{format_ns(answer.lowest_ns)} to {format_ns(answer.highest_ns)}",
        "" if answer.own_ns is None else Cell(format_ns(answer.own_ns), value=answer.own_ns),
        _STANDS_FOR[answer.change.kind],
    )


def _facts(one: WhatIf) -> Facts:
    way = one.way
    whole_ns = max(1, way.whole_ns)
    owners = list(way.owners_ns.items())
    named = [f"{_name_owner(owner)} {format_fraction(time_ns / whole_ns)}" for owner, time_ns in owners[:_MOST_OWNERS]]
    more = len(owners) - len(named)
    listed = ", ".join([*named, *([f"{more} more"] if more > 0 else [])])
    comm_ns = sum(way.owners_ns.values())
    host = "hosts" if one.is_device else "hosts, which compute,"
    parts = [
        f"{host} {format_fraction(way.host_ns / whole_ns)}",
        *([f"kernels and copies {format_fraction(way.work_ns / whole_ns)}"] if one.is_device else []),
        f"communication {format_fraction(comm_ns / whole_ns)}{f' ({listed})' if listed else ''}",
    ]
    facts = [Fact("the longest way through the steps", "; ".join(parts))]
    if len(way.ranks_ns) > 1:
        ranks = sorted(way.ranks_ns.items(), key=lambda item: -item[1])[:_MOST_OWNERS]
        said = [f"rank {rank} for {format_fraction(ns / whole_ns)}" for rank, ns in ranks]
        others = len(way.ranks_ns) - len(said)
        facts.append(Fact("it runs on", ", ".join([*said, *([count_things(others, "more rank")] if others else [])])))
    facts += _beside_skew(one)
    facts += _tell_links(one)
    misfits = sorted(abs(misfit) for fit in one.fits for misfit in fit.misfits)
    numbers_ = sorted({number for fit in one.fits for number in fit.numbers})
    facts.append(
        Fact(
            "the unchanged replay",
            f"off by {format_fraction(misfits[len(misfits) // 2])} of a step in the median, "
            f"{format_fraction(misfits[-1])} in the worst, of {name_steps(numbers_)}"
            f"{f' of {len(one.fits)} launches' if len(one.fits) > 1 else ''}",
        )
    )
    facts += _say_rescaled(one)
    return Facts(tuple(facts), key="way")


def _say_rescaled(one: WhatIf) -> Iterator[Fact]:
    """Say what hosts take, where steps are as MEASURED ones."""
    if one.host_times:
        low, high = (format_fraction(pick(one.host_times)) for pick in (min, max))
        times = low if low == high else f"{low} to {high}"
        yield Fact("as MEASURED", f"hosts take {times} of what they took in PROFILED steps, so that a step is as long")


def _beside_skew(one: WhatIf) -> Iterator[Fact]:
    """Set what equal work on all ranks would save beside what ranks wait for each other, which is more, or less."""
    equal = next((answer for answer in one.answers if answer.change.kind is ChangeKind.STRAGGLER), None)
    if equal is None or one.waited_ns is None:
        return
    yield Fact(
        "no straggler beside the skew table",
        f"{format_ns(max(0.0, equal.saving_ns))} a step are saved, where {count_things(one.ranks, 'rank')} wait "
        f"{format_ns(one.waited_ns)} for the last of them, summed: these are not alike, as ranks wait at the same "
        "time, waits may be hidden, and with equal work each takes the time of the one in the middle",
    )


def _tell_links(one: WhatIf) -> Iterator[Fact]:
    """Say what links were found to cost, and how well that explains what collectives took."""
    if not any(answer.change.kind in (ChangeKind.LATENCY, ChangeKind.BANDWIDTH) for answer in one.answers):
        return
    held = sorted(
        ((key, fit) for key, fit in one.links.items() if fit is not None and fit.holds),
        key=lambda item: -item[1].service_ns,
    )
    said = [
        f"{name_operation(key.operation)} among {key.size} ranks {_spell_cost(fit)}, half of them off by "
        f"{format_fraction(fit.off)} or less"
        for key, fit in held[:_MOST_OWNERS]
    ]
    more = len(held) - len(said)
    first = " (first launch)" if len(one.fits) > 1 else ""
    yield Fact(f"collectives cost, as was found{first}", "; ".join([*said, *([f"{more} more"] if more else [])]))


def _spell_cost(fit: LinkFit) -> str:
    bandwidth = f" and {1 / fit.ns_per_byte:.3g} GB/s" if fit.ns_per_byte else ", whatever their size"
    return f"{format_ns(fit.latency_ns)}{bandwidth}"


def _notes(cells: Mapping[str, WhatIf]) -> list[str]:
    if not cells:
        return []
    profiled = [name for name, one in cells.items() if not one.host_times]
    whose = ""
    if profiled:
        some = "" if len(profiled) == len(cells) else f" of {', '.join(profiled)}"
        whose = f", and steps{some} are PROFILED ones"
    notes = [f"replayed, not run: none of these changes was made on this hardware{whose}"]
    if any(len(one.answers) > 1 for one in cells.values()):
        notes.append("savings do not add up: one change may take away what another would")
    for ranks, missing in dict.fromkeys((one.ranks, one.missing) for one in cells.values()):
        if missing != 0:
            here = "of a job of which it is not told how many it has" if missing is None else f"of {ranks + missing}"
            notes.append(
                f"{count_things(ranks, 'rank')} {here} {is_or_are(ranks)} here: what is waited for the others is in "
                "what collectives take, and no change is offered that needs the others"
            )
    notes += [f"{name}: {said}" if name else said for name, one in cells.items() for said in _say_lacks(one)]
    if any(answer.change.kind is ChangeKind.APART for one in cells.values() for answer in one.answers):
        notes.append("collectives in queues of their own share the links then, which is not replayed: it saves no more")
    if any(one.steps == 1 for one in cells.values()):
        notes.append("there is one step alone: how much a saving differs from step to step is not known")
    notes += say_not_asked(dict.fromkeys(refused for one in cells.values() for refused in one.not_asked))
    return notes


def _say_lacks(one: WhatIf) -> Iterator[str]:
    """Say what of one cell is not replayed, or not as it was."""
    if one.unmatched and one.missing == 0:
        yield (
            f"{count_things(one.unmatched, 'collective')} {is_or_are(one.unmatched)} not known to be one with those of "
            "other ranks: what they wait for them is in what they take"
        )
    if not one.are_in_step:
        yield (
            "how far the clocks of its ranks are apart is not known: ranks are replayed as if they began together, and "
            "a step ends with the one that takes longest"
        )
    if one.left_out:
        where = " in every launch" if len(one.fits) > 1 else ""
        yield (
            f"{name_steps(one.left_out)} {is_or_are(len(one.left_out))} not replayed{where}: not all of it is known, "
            "others disturbed it, or it does not follow the rest"
        )
