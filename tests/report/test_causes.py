"""Words for causes."""

import numpy as np
import pytest

from dtbench.base.vocabulary import Cause, MissingInput, Operation, Purpose
from dtbench.report.words.causes import (
    describe_cause,
    describe_exposed_owner,
    describe_leading,
    find_leading,
    name_collective,
    spell_owner,
)
from dtbench.traces.causes.exposed_owners import ExposedOwner
from dtbench.traces.time.intervals import unite
from dtbench.traces.who.collectives import Collective


def reduction(owner: str) -> Collective:
    return Collective(
        group="dp", axis=None, seq=1, operation=Operation.REDUCE_SCATTER, purpose=Purpose.GRAD_REDUCE, owner=owner,
        size_bytes=None, issue_ns=0, issue_end_ns=0, span=unite(np.array([0]), np.array([1])), above=(),
    )  # fmt: skip


def test_skew_names_the_rank_that_came_last_where_that_is_known() -> None:
    assert describe_cause(Cause.SKEW, waited_for=3) == "waited for rank 3"
    assert describe_cause(Cause.SKEW, waited_for=0) == "waited for rank 0"
    assert describe_cause(Cause.SKEW) == "waited for other ranks"


def test_a_queue_names_what_held_the_lane() -> None:
    assert describe_cause(Cause.QUEUED, behind=reduction("layers.1")) == "queued behind layers.1's reduce-scatter"
    assert describe_cause(Cause.QUEUED, behind=reduction("")) == "queued behind an unattributed reduce-scatter"


def test_an_unknown_cause_names_everything_that_is_missing() -> None:
    missing = (MissingInput.RANKS, MissingInput.LAUNCH)
    assert describe_cause(Cause.UNKNOWN, missing=missing) == (
        "cause unknown (missing: the other ranks' traces, which tell skew from bandwidth; the call that launched it)"
    )


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_has_words(cause: Cause) -> None:
    assert describe_cause(cause)


def test_every_missing_input_has_words() -> None:
    assert len({describe_cause(Cause.UNKNOWN, missing=[one]) for one in MissingInput}) == len(MissingInput)


def test_owners_that_are_bare_numbers_or_framed_read_as_names() -> None:
    assert name_collective("1", Operation.REDUCE_SCATTER) == "module 1's reduce-scatter"
    assert name_collective("0.1", None) == "module 0.1's collective"
    assert name_collective("## exchange ##", None) == "exchange's collective"
    assert spell_owner("##") == "##"


def test_an_exposed_owner_reads_as_who_and_why() -> None:
    row = ExposedOwner(
        owner="layers.3", purpose=Purpose.UNSHARD, operation=Operation.ALL_GATHER, cause=Cause.LATE_ISSUE,
        exposed_ns=21, owner_exposed_ns=21, count=1, behind=None, waited_for=None, missing=(),
    )  # fmt: skip
    assert describe_exposed_owner(row) == "layers.3's all-gather, issued late"


def test_what_has_no_owner_is_unattributed() -> None:
    assert name_collective(None, None) == "an unattributed collective"


def row(owner: str, cause: Cause, exposed_ns: int, owner_exposed_ns: int) -> ExposedOwner:
    return ExposedOwner(
        owner=owner, purpose=Purpose.UNSHARD, operation=Operation.ALL_GATHER, cause=cause, exposed_ns=exposed_ns,
        owner_exposed_ns=owner_exposed_ns, count=1, behind=None, waited_for=None, missing=(),
    )  # fmt: skip


def test_an_owner_that_stands_out_leads_with_its_cause() -> None:
    rows = [row("a", Cause.LATE_ISSUE, 40_000, 60_000), row("a", Cause.TAIL, 20_000, 60_000)]
    rows += [row(f"b{i}", Cause.TAIL, 10_000, 10_000) for i in range(9)]
    leads = describe_leading(rows, 2, describe_exposed_owner)
    assert leads == "30.0 us of it a's all-gather, mostly issued late"
    assert find_leading(rows).owner == "a"


def test_where_no_owner_stands_out_the_largest_cause_leads() -> None:
    rows = [
        row("a", Cause.LATE_ISSUE, 20_000, 20_000),
        *(row(f"b{i}", Cause.SYNC_OP, 10_000, 10_000) for i in range(9)),
    ]
    leads = describe_leading(rows, 1, describe_exposed_owner)
    assert leads == "90.0 us of it issued blocking; the largest part of that, 10.0 us: b0's all-gather"
    assert find_leading(rows).cause is Cause.SYNC_OP


def test_the_part_of_an_owner_that_has_the_largest_cause_has_all_of_it() -> None:
    rows = [row("a", Cause.SYNC_OP, 15_000, 18_000), row("a", Cause.TAIL, 3_000, 18_000)]
    rows += [row(f"b{i}", Cause.SYNC_OP, 10_000, 10_000) for i in range(9)]
    said = "the largest part of that, 15.0 us: a's all-gather"
    assert describe_leading(rows, 1, describe_exposed_owner).endswith(said)


def test_an_unknown_cause_never_leads_in_place_of_an_owner() -> None:
    rows = [row("a", Cause.TAIL, 20_000, 20_000), *(row(f"b{i}", Cause.UNKNOWN, 10_000, 10_000) for i in range(9))]
    assert describe_leading(rows, 1, describe_exposed_owner).startswith("20.0 us of it a's")
