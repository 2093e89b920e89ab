"""What a click on a collective shows: whose it is, what it carries, every rank's times, and why it was exposed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from dtbench.base.units import format_bandwidth, format_bytes, format_ns
from dtbench.base.vocabulary import Cause, Purpose
from dtbench.report.page.page import Bar, Chart, Column, Fact, Table
from dtbench.report.tb_plugin.collectives import spell_number
from dtbench.report.tb_plugin.overlap import cause_parts
from dtbench.report.tb_plugin.refusal import NOT_FOUND, Refusal
from dtbench.report.tb_plugin.rows import Row, plain_rows
from dtbench.report.words import causes
from dtbench.report.words.advice import Loss, advise_loss
from dtbench.report.words.knobs import Ran
from dtbench.traces.causes.exposed_owners import Carried
from dtbench.traces.rows.collective_table import read_missing


@dataclass(frozen=True)
class CollectiveDetails:
    """One collective.

    Attributes:
        row: its place in the launch's table.
        parameters: what it carries; empty: not known.
        ranks: its times on every rank that has it.
        chart: exposed time by cause, a bar per rank; None: nothing is exposed, or it is not known.
        advice: what would change its cause.
        place: rank and position among that rank's collectives: how the timeline finds it.
    """

    row: int
    title: str
    owner: str
    facts: tuple[Fact, ...]
    parameters: tuple[str, ...]
    ranks: Table
    chart: Chart | None
    advice: str
    rank: int
    index: int
    step: int | None


def describe_collective(table: pd.DataFrame, row: int, ran: Ran | None) -> CollectiveDetails:
    """Return everything that the table says of one collective.

    Args:
        table: the table ``collectives`` of one launch.
        row: a row of it.
        ran: what was run, for the words of the advice; None: causes are no findings here, so none is given.

    Raises:
        Refusal: there is no such row.
    """
    if not 0 <= row < len(table):
        raise Refusal(NOT_FOUND, f"There is no collective {row}; the launch has {len(table)}.")
    one = plain_rows(table.iloc[[row]])[0]
    same, doubt = _find_same(table, one)
    return CollectiveDetails(
        row=row,
        title=causes.name_collective(one.text("owner") or None, one.operation),
        owner=one.text("owner") or causes.UNATTRIBUTED,
        facts=tuple(_facts(one)),
        parameters=tuple(one.text("parameters").split(", ")) if one.text("parameters") else (),
        ranks=_rank_table(same, doubt),
        chart=_cause_chart(same),
        advice="" if one.cause is None or ran is None else _advise(one, one.cause, ran),
        rank=int(one.text("rank")),
        index=int((table["rank"].iloc[:row] == int(one.text("rank"))).sum()),
        step=one.whole("step"),
    )


def _advise(one: Row, cause: Cause, ran: Ran) -> str:
    """Say what would change the cause of a collective; nothing where what of it was exposed is not known."""
    if one.number("exposed_ns") is None:
        return ""
    parameters, size = one.text("parameters"), one.whole("size_bytes")
    carried = Carried(
        size_bytes=size,
        dtype=one.text("dtype"),
        parameters=tuple(parameters.split(", ")) if parameters else (),
        group=one.text("group"),
    )
    purpose = Purpose(one.text("purpose"))
    loss = Loss(
        one.text("owner"),
        purpose,
        one.operation,
        cause,
        exposed_ns=0,
        carried=carried,
        missing=read_missing(one.text("missing")),
    )
    return advise_loss(loss, ran)


def _facts(one: Row) -> Iterator[Fact]:
    yield Fact("owner", one.text("owner") or causes.UNATTRIBUTED)
    yield Fact("purpose", one.text("purpose"))
    yield Fact("cause", _cause_fact(one))
    yield Fact("region", one.text("region") or "n/a")
    yield Fact("size", spell_number(one.number("size_bytes"), format_bytes))
    yield Fact("dtype", one.text("dtype") or "n/a")
    axis = f", axis {one.text('axis')}" if one.text("axis") else ""
    size = f", {one.text('group_size')} ranks" if one.text("group_size") else ""
    yield Fact("group", f"{one.text('group') or 'n/a'}{axis}{size}")
    yield Fact("number in group", one.text("seq") or "n/a")
    yield Fact("lane", one.text("lane") or "n/a")
    yield Fact("step", one.text("step") or "n/a")


def _cause_fact(one: Row) -> str:
    exposed_ns = one.number("exposed_ns")
    if exposed_ns is None:
        return "n/a: what of it was exposed is not known"
    missing = read_missing(one.text("missing"))
    if one.cause is Cause.UNKNOWN and missing:
        return f"{one.cause_words} ({causes.name_missing(missing)})"
    return one.cause_words or ("nothing is exposed" if not exposed_ns else "n/a")


def _find_same(table: pd.DataFrame, one: Row) -> tuple[list[Row], str]:
    """Return its rows on all ranks, and a sentence where they cannot be told from others.

    torch names groups by counters, so two groups may share a name: more rows than the group has ranks are two.
    """
    if one.whole("seq") is None or not one.text("group"):
        return [one], "The trace does not number it, so its other ranks are not known."
    is_same = (table["group"] == one.text("group")) & (table["seq"] == one.whole("seq")).fillna(value=False)
    is_same &= table["operation"] == one.text("operation")
    found = plain_rows(table[is_same])
    same = [row for row in found if row.whole("step") == one.whole("step")]
    most = one.whole("group_size")
    if most is not None and len(same) > most:
        return [one], "Several groups have this name, so its other ranks are not told."
    return sorted(same, key=lambda row: row.whole("rank") or 0), ""


def _rank_table(same: Sequence[Row], doubt: str) -> Table:
    names = ("rank", "exposed", "cause", "time", "waited for last", "transfer", "hidden", "busbw", "issue to start")
    last = next((row.whole("last_rank") for row in same if row.whole("last_rank") is not None), None)
    began = f"Rank {last} began last." if last is not None else ""
    return Table(
        title="On every rank",
        columns=tuple(Column(name, is_number=name != "cause") for name in names),
        rows=tuple(_rank_row(row) for row in same),
        notes=tuple(sentence for sentence in (began, doubt) if sentence),
    )


def _rank_row(row: Row) -> tuple[str, ...]:
    return (
        row.text("rank"),
        spell_number(row.number("exposed_ns"), format_ns),
        row.cause_words,
        spell_number(_minus(row.whole("end_ns"), row.whole("start_ns")), format_ns),
        spell_number(row.number("skew_wait_ns"), format_ns),
        spell_number(row.number("transfer_ns"), format_ns),
        spell_number(row.number("hidden_ns"), format_ns),
        spell_number(row.number("busbw"), format_bandwidth),
        spell_number(_minus(row.whole("start_ns"), row.whole("issue_ns")), format_ns),
    )


def _minus(end: int | None, start: int | None) -> int | None:
    return None if end is None or start is None else end - start


def _cause_chart(same: Sequence[Row]) -> Chart | None:
    bars = []
    for row in same:
        lengths = tuple(row.whole(f"exposed_{cause}_ns") or 0 for cause in Cause)
        if row.whole("exposed_ns") is not None and any(lengths):
            words = tuple(format_ns(length) for length in lengths)
            bars.append(Bar(f"rank {row.text('rank')}", lengths, words, end=format_ns(row.number("exposed_ns"))))
    return Chart(title="Exposed time by cause", parts=cause_parts(), bars=tuple(bars)) if bars else None
