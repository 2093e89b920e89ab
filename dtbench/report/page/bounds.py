"""What became of the bounds of ``dtbench compare --fail-if``, near the answer of every form of the page."""

from collections.abc import Iterator
from typing import Final

from dtbench.comparison.gate import Gate, Kept
from dtbench.report.page.page import Fact, Facts, Part, Tone

_TONES: Final = {
    Kept.KEPT: Tone.GOOD,
    Kept.EXCEEDED: Tone.BAD,
    Kept.NOT_ESTABLISHED: Tone.WARNING,
    Kept.UNDECIDED: Tone.WARNING,
}


def bounds_facts(gate: Gate | None) -> Iterator[Facts]:
    """Yield whether the bounds let the command pass, then each with its numbers; nothing where there are none."""
    if gate is None:
        return
    tone = Tone.BAD if gate.exceeded else Tone.WARNING if gate.undecided else Tone.GOOD
    judged = [Fact("bound", one.words, _TONES[one.kept]) for one in gate.judgements]
    lacking = [Fact("bound", words, Tone.WARNING) for words in gate.unjudged]
    yield Facts((Fact("gate", gate.sentence, tone), *judged, *lacking), key="bounds", title="Bounds of --fail-if")


def bounds_part(gate: Gate | None) -> Iterator[Part]:
    """Yield the same as the part that comes first."""
    yield from (Part("bounds", "", (facts,)) for facts in bounds_facts(gate))
