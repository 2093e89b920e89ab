"""Notes are values: their class is their kind, and what is said of several ranks alike is one sentence."""

import json
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from dtbench.base.vocabulary import Purpose
from dtbench.report.documents import traces as traces_documents
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.notes import clocks, files, job, lacking, spans, tables
from dtbench.traces.notes.clocks import ClockCorrected, Copies, EndsAstray
from dtbench.traces.notes.files import NotUnderstood, StrayWork
from dtbench.traces.notes.job import NoOtherEnd, NotElsewhere, PurposesDisputed, PurposesFollowed, SharesNothing
from dtbench.traces.notes.lacking import LostKernels, OutsideSteps
from dtbench.traces.notes.note import Note, OfRanks, join_ranks, pick_notes, say_notes
from dtbench.traces.notes.spans import HostNotRecorded, LaunchesNotLinked, NotDrawn, OwnStart
from dtbench.traces.notes.tables import NoTrace, OtherOwners


def test_notes_that_say_the_same_of_several_ranks_are_one() -> None:
    notes: list[Note] = [LostKernels((rank,), 3, 0, is_cut=False, steps=(1, 2)) for rank in range(16)]
    notes.insert(3, NotUnderstood((2,), "io", 4))
    joined = join_ranks(notes)
    assert joined == (LostKernels(tuple(range(16)), 3, 0, is_cut=False, steps=(1, 2)), NotUnderstood((2,), "io", 4))
    assert say_notes(joined) == (
        (
            "ranks 0-15: 3 kernels that were launched are not in the trace, so what took the time and what was hidden"
            " is not known in steps 1-2"
        ),
        "rank 2: 4 events of category io are not understood, and in no number",
    )


def test_times_that_read_the_same_are_the_same_and_others_stay_apart() -> None:
    notes = [OutsideSteps((0,), 2, 1_234_000), OutsideSteps((1,), 2, 1_234_400), OutsideSteps((2,), 2, 1_300_000)]
    assert [note.ranks for note in join_ranks(notes)] == [(0, 1), (2,)]


@pytest.mark.parametrize(
    "notes",
    [
        (Copies((0, 1)), Copies((2, 3))),
        (ClockCorrected((0,), 1_000, 10, 0.0), ClockCorrected((1,), 1_001, 10, 0.0)),
    ],
    ids=["copies of one trace", "one clock"],
)
def test_what_ranks_have_together_is_not_said_of_the_ranks_of_another_note(notes: tuple[Note, ...]) -> None:
    assert join_ranks(notes) == notes


def test_a_note_that_comes_again_is_there_once_and_may_be_asked_for_by_its_kind() -> None:
    notes = join_ranks([Copies((0, 1)), OutsideSteps((0,), 2, 5), Copies((0, 1)), OutsideSteps((0,), 2, 5)])
    assert pick_notes(notes, Copies) == [Copies((0, 1))]
    assert pick_notes(notes, OfRanks) == [OutsideSteps((0,), 2, 5)]


@pytest.mark.parametrize(
    ("note", "one", "several"),
    [
        (
            SharesNothing((1,), "b.json", 5_000),
            (
                "b.json is not known to share a collective with any other rank and lies 5.00 us from theirs; its own"
                " figures stand, nothing over ranks is said of it"
            ),
            (
                "ranks 1-3 are not known to share a collective with any other rank and lie 5.00 us from theirs; their"
                " own figures stand, nothing over ranks is said of them"
            ),
        ),
        (
            NotElsewhere((1,), "", 2, 9),
            "rank 1: 2 of 9 collectives of rank 1 could not be found in any other trace; the others are matched",
            "ranks 1-3: 2 of 9 collectives of each could not be found in any other trace; the others are matched",
        ),
        (
            NoOtherEnd((1,), 2, 9),
            (
                "2 of 9 sends and receives of rank 1 have no other end in any trace: how long they waited for that is"
                " not known"
            ),
            (
                "2 of 9 sends and receives of each of ranks 1-3 have no other end in any trace: how long they waited"
                " for that is not known"
            ),
        ),
        (
            PurposesFollowed((1,), 1),
            "rank 1: its trace does not tell what 1 collective is for; the other ranks' traces do, and are followed",
            (
                "ranks 1-3: their traces do not tell what 1 collective of each is for; the other ranks' traces do, and"
                " are followed"
            ),
        ),
        (
            PurposesDisputed((1,), 2, frozenset({Purpose.GRAD_REDUCE, Purpose.UNSHARD})),
            (
                "rank 1: its trace does not tell what 2 collectives are for, and the other ranks disagree (grad_reduce,"
                " unshard): of these there may be more than is said"
            ),
            (
                "ranks 1-3: their traces do not tell what 2 collectives of each are for, and the other ranks disagree"
                " (grad_reduce, unshard): of these there may be more than is said"
            ),
        ),
        (
            OtherOwners((1,), 2, 9, "", "layers.0"),
            (
                "rank 1: 2 of 9 collectives have another owner in the trace than FSDP said, the first none in place of"
                " layers.0; please report this"
            ),
            (
                "ranks 1-3: 2 of 9 collectives have another owner in the trace than FSDP said, the first none in place"
                " of layers.0; please report this"
            ),
        ),
        (
            OwnStart((1,), is_uncompared=True),
            "rank 1 is drawn from its own start: nothing tells how far its clock is from the others'",
            "ranks 1-3 are drawn from their own starts: nothing tells how far their clocks are from the others'",
        ),
        (
            OwnStart((1,), is_uncompared=False),
            "rank 1 is drawn from its own start: its trace is not in step with the others",
            "ranks 1-3 are drawn from their own starts: their traces are not in step with the others",
        ),
        (
            NotDrawn((1,), (5,)),
            "rank 1 is not drawn: its trace has no step 5",
            "ranks 1-3 are not drawn: their traces have no step 5",
        ),
        (
            HostNotRecorded((1,), ("operators", "launches")),
            "operators and launches of the host of rank 1 were not recorded: none are drawn",
            "operators and launches of the host of ranks 1-3 were not recorded: none are drawn",
        ),
        (
            LaunchesNotLinked((1,)),
            "launches of rank 1 are not tied to what they launched: its device's times do not fit its host's",
            "launches of ranks 1-3 are not tied to what they launched: their devices' times do not fit their hosts'",
        ),
        (
            NoTrace((1,)),
            "rank 1 is left out: it has no trace",
            "ranks 1-3 are left out: they have no trace",
        ),
        (
            StrayWork((1,), "1", 2, 9_000, "0", None),
            "rank 1: 2 events on device 1 (9.00 us) are in no number: the process computes on device 0",
            "ranks 1-3: 2 events on device 1 (9.00 us) are in no number: the process computes on device 0",
        ),
        (
            EndsAstray((1,), (2, 3), 9, 5_000.0, is_most=True, is_later=None, was_set=True),
            (
                "rank 1: 2 of 9 common collectives (numbers 2-3) ended up to 5.00 us apart, and it is not known which"
                " end is right (was one clock set?). Nothing is said about skew there"
            ),
            (
                "ranks 1-3: 2 of 9 common collectives (numbers 2-3) ended up to 5.00 us apart, and it is not known"
                " which end is right (was one clock set?). Nothing is said about skew there"
            ),
        ),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Note) else "",
)
def test_of_one_rank_and_of_several_a_note_is_a_sentence(note: OfRanks, one: str, several: str) -> None:
    assert str(note) == one
    assert say_notes(join_ranks([note, note.of(3), note.of(2)])) == (several,)


def kinds() -> Iterator[type[Note]]:
    for module in (clocks, files, job, lacking, spans, tables):
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Note) and value.__module__ == module.__name__:
                yield value


def test_every_kind_is_a_frozen_value_whose_fields_are_hashable() -> None:
    """A field that is a list or a dict would make notes that cannot be told apart, or change after they were made."""
    found = list(kinds())
    assert len(found) > 50
    for kind in found:
        assert is_dataclass(kind)
        for field in fields(kind):
            assert not str(field.type).startswith(("list", "dict", "set", "Mapping", "Sequence")), (kind, field.name)


def test_what_is_in_no_number_of_several_traces_alike_is_one_sentence(draw: Callable[..., Path]) -> None:
    paths = []
    for rank in range(3):
        info = {"rank": rank, "world_size": 3}
        path = draw("op aten::mm  @1 |====|", f"rank{rank}.json", distributedInfo=info)
        document = json.loads(path.read_text())
        document["traceEvents"] += [{"ph": "X", "cat": "io", "name": "read", "pid": 9, "tid": 1, "ts": 2, "dur": 1}] * 3
        path.write_text(json.dumps(document))
        paths.append(path)
    traces = analyze_traces(paths)
    assert pick_notes(traces.notes, NotUnderstood) == [NotUnderstood((0, 1, 2), "io", 3)]
    said = "ranks 0-2: 3 events of category io are not understood, and in no number"
    shown = traces_documents.document(traces)["notes"]
    assert isinstance(shown, list)
    assert [note for note in shown if "category io" in note] == [said]
