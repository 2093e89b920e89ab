"""Words for causes."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from dtbench.analyze.causes.exposed_owners import ExposedOwner
from dtbench.analyze.collectives import Collective
from dtbench.analyze.intervals import unite
from dtbench.report.causes import advise_cause, describe_cause, describe_exposed_owner, name_collective, spell_owner
from dtbench.vocabulary import Cause, MissingInput, Operation, Purpose


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
        "cause unknown (missing: the other ranks' traces: skew or bandwidth; the call that launched it)"
    )


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_has_words_and_a_sentence_that_ends(cause: Cause) -> None:
    assert describe_cause(cause)
    for purpose, is_device in itertools.product(Purpose, (True, False)):
        assert advise_cause(cause, purpose, is_device=is_device).endswith(".")


def test_every_missing_input_has_words_and_a_next_step() -> None:
    phrases = {describe_cause(Cause.UNKNOWN, missing=[one]) for one in MissingInput}
    steps = {advise_cause(Cause.UNKNOWN, Purpose.OTHER, is_device=True, missing=[one]) for one in MissingInput}
    assert len(phrases) == len(steps) == len(MissingInput)


def test_on_gloo_a_late_gather_needs_more_than_prefetch() -> None:
    on_gloo = advise_cause(Cause.LATE_ISSUE, Purpose.UNSHARD, is_device=False)
    on_nccl = advise_cause(Cause.LATE_ISSUE, Purpose.UNSHARD, is_device=True)
    assert "_set_unshard_async_op(True)" in on_gloo
    assert "_set_unshard_async_op" not in on_nccl
    assert "set_modules_to_forward_prefetch" in on_nccl


def test_a_reduction_behind_a_reduction_is_not_sent_to_another_group() -> None:
    def advise(behind: Collective | None) -> str:
        return advise_cause(Cause.QUEUED, Purpose.GRAD_REDUCE, is_device=True, behind=behind)

    gather = replace(reduction("layers.1"), operation=Operation.ALL_GATHER, purpose=Purpose.UNSHARD)
    assert "set_separate_reduce_scatter_group" in advise(gather)
    assert "process group" not in advise(reduction("layers.1"))
    assert "process group" in advise(None)


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
