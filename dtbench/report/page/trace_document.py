"""What traces say as one JSON document: integer nanoseconds, ratios as fractions, "NaN" where a number is not known."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Literal

from dtbench.base.columns import Row
from dtbench.runs.representative import doubt_steps, read_steps_of_traces
from dtbench.traces.account.accounts import WindowAccount
from dtbench.traces.account.overlap_tax import CAVEAT, OverlapTax
from dtbench.traces.account.purpose_times import PurposeTime
from dtbench.traces.causes.exposed_owners import ExposedOwner
from dtbench.traces.device.clock import DeviceClock
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.notes.note import say_notes
from dtbench.traces.rank.analysis import TraceAnalysis
from dtbench.traces.rows.collective_table import COLLECTIVES
from dtbench.traces.rows.tables import GAPS, GROUPS, LANES, OVERLAP, PURPOSES, WHOLE
from dtbench.traces.time.overlap import Overlap
from dtbench.traces.trace import Unread

FORMAT_VERSION = 1


def traces_document(traces: TraceSet) -> dict[str, object]:
    """Return the document without its collectives, which are many: see ``collective_documents``.

    In a window that is ``at_least`` collectives or kernels were launched and not seen to run: times of communication,
    of what is exposed and of waits are then at least what they say, those of copies and idle time at most.
    """
    ranks = zip(traces.analyses, traces.unread, strict=True)
    return {
        "format_version": FORMAT_VERSION,
        "world_size": "NaN" if traces.world_size is None else traces.world_size,
        "ranks": [_rank_document(one, unread) for one, unread in ranks],
        "unread": traces.unread_events,
        "uncorrelated": dict(traces.uncorrelated),
        "unknown_names": [{"name": name, "count": count} for name, count in traces.unknown_names],
        "names_on_comm_lanes": [asdict(name) for name in traces.names_on_comm_lanes],
        "owners": [_owner_document(row) for row in traces.owners],
        "waiting": _waiting_documents(traces),
        "handed_on_ns": _give_handed_on(traces),
        "late_together": [asdict(one) for one in traces.over_ranks.waiting.together],
        "notes": list(say_notes(traces.notes)),
        "doubts": [asdict(doubt) for doubt in doubt_steps(read_steps_of_traces(traces.analyses))],
    }


def _give_handed_on(traces: TraceSet) -> int | Literal["NaN"]:
    """Return what ranks waited for those that may only hand on a delay, summed: in no rank's ``caused_wait_ns``."""
    waiting = traces.over_ranks.waiting
    is_known = waiting.handed_on_ns or not math.isnan(waiting.wait_fraction)
    return waiting.handed_on_ns if is_known else "NaN"


def _waiting_documents(traces: TraceSet) -> list[dict[str, object]]:
    """Return who waits for whom; ``meanwhile`` is what a rank did that others waited for, "NaN" where not known."""
    late = {one.rank: {k: v for k, v in asdict(one).items() if k != "rank"} for one in traces.late_ranks}
    return [
        {
            **_numbers({**asdict(one), "wait_fraction": one.wait_fraction}),
            "meanwhile": _numbers(late[one.rank]) if one.rank in late else "NaN",
        }
        for one in traces.over_ranks.waiting.ranks
    ]


def collective_documents(traces: TraceSet) -> Iterator[Row]:
    """Return every collective of every rank, with the columns of the table ``collectives``."""
    for row in COLLECTIVES.list_rows(traces.analyses):
        yield _numbers(row)


def _rank_document(one: TraceAnalysis, unread: Unread) -> Mapping[str, object]:
    is_whole_least = bool(one.unseen) or one.lost.recorded is not None
    return {
        "rank": one.rank,
        "path": one.path,
        "whole": {
            **_overlap_document(WHOLE.describe(one.whole), one.whole, is_least=is_whole_least),
            "unattributed_ns": _number(one.whole_unattributed_ns),
            "purposes": _purpose_documents(one.whole_purposes),
            **_account_document(one.accounts.whole),
        },
        "steps": [
            {
                "step": step.step,
                **_overlap_document(
                    OVERLAP.describe(step.overlap),
                    step.overlap,
                    is_least=bool(step.lost) or step.step in one.lost.steps,
                ),
                "unattributed_ns": _number(step.unattributed_ns),
                "purposes": _purpose_documents(step.purposes),
                **_account_document(account),
            }
            for step, account in zip(one.steps, one.accounts.steps, strict=True)
        ],
        "overlap_tax": _tax_document(one.accounts.overlap_tax),
        "lost": {"kernels": one.lost.kernels, "collectives": one.unseen, "steps": list(one.lost.steps)},
        "device_clock": _clock_document(one.clock),
        "unread": {"count": unread.count, "reasons": dict(unread.events), "is_truncated": unread.is_truncated},
    }


def _overlap_document(times: Row, overlap: Overlap, *, is_least: bool) -> dict[str, object]:
    """Return an account with its two shares; the hidden one is not known where not all communication was seen."""
    fractions = {
        "hidden_fraction": None if is_least else overlap.hidden_fraction,
        "exposed_step_fraction": overlap.exposed_step_fraction,
    }
    return {**_numbers({**times, **fractions}), "at_least": is_least}


def _purpose_documents(purposes: Iterable[PurposeTime]) -> list[dict[str, object]]:
    return [_numbers(PURPOSES.describe(row)) for row in purposes]


def _account_document(account: WindowAccount) -> dict[str, object]:
    """Return lanes, process groups and the gaps of the main compute lane; "NaN" where there is no such lane."""
    return {
        "lanes": [_numbers(LANES.describe(lane)) for lane in account.lanes],
        "groups": [_numbers(GROUPS.describe(group)) for group in account.groups],
        "gaps": "NaN" if account.gaps is None else _numbers(GAPS.describe(account.gaps)),
    }


def _clock_document(clock: DeviceClock) -> object:
    """Return what shows that the device's clock is off; "NaN" where no launch, or no call that waited, tells."""
    return "NaN" if clock.launched is None else _numbers(asdict(clock))


def _tax_document(tax: OverlapTax | None) -> object:
    if tax is None:
        return "NaN"
    return {
        "ratio": _number(tax.ratio),
        "tax_ns": _number(tax.tax_ns),
        "slower_fraction": _number(tax.slower_fraction),
        "kernels": len(tax.kernels),
        "unlike_count": tax.unlike_count,
        "regionless_count": tax.regionless_count,
        "caveat": CAVEAT,
    }


def _owner_document(row: ExposedOwner) -> Mapping[str, object]:
    return {
        "owner": row.owner or "",
        "operation": str(row.operation or ""),
        "purpose": str(row.purpose),
        "cause": str(row.cause),
        "exposed_ns": row.exposed_ns,
        "owner_exposed_ns": row.owner_exposed_ns,
        "count": row.count,
        "behind": "" if row.behind is None else row.behind.owner,
        "waited_for": "NaN" if row.waited_for is None else row.waited_for,
        "missing": [str(one) for one in row.missing],
        "at_most_ns": _number(row.carried.at_most_ns),
        "transfer_ns": _number(row.carried.transfer_ns),
    }


def _numbers(row: Mapping[str, object]) -> dict[str, object]:
    return {name: _number(value) for name, value in row.items()}


def _number(value: object) -> object:
    """Return a value as it is, and what is not known as the word "NaN": JSON has no number for it."""
    is_unknown = value is None or (isinstance(value, float) and math.isnan(value))
    return "NaN" if is_unknown else value
