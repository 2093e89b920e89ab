"""Mutated traces of small jobs: ``dtbench analyze`` answers each, or refuses it in a sentence."""

import copy
import random
from functools import cache
from pathlib import Path
from typing import Final

from tests.fuzz.small_traces import Document, make_jobs
from tests.fuzz.trace_mutations import JSONS, MEANINGS, damage, damage_packed, encode
from tests.fuzz.trace_oracle import judge_traces
from tests.fuzz.tries import Outcome

_COUNTS: Final = (1, 1, 1, 2, 2, 3, 4, 6, 10)
_TEXT, _PACKED, _BOTH = 0.12, 0.2, 0.25
"""Up to which part of all numbers the bytes are damaged: of the text, of what gzip made of it, of a mutated trace."""


class Traces:
    """The fuzzer of traces; its inputs are a file, or a folder with one of each rank."""

    block = 200

    def make(self, number: int, folder: Path) -> Path:
        """Write the trace, or traces, of a number."""
        chance = random.Random(f"traces {number}")
        jobs = make_jobs()
        job = jobs[chance.choice(list(jobs))]
        mode = chance.random()
        ranks = list(copy.deepcopy(job))
        if mode > _PACKED:
            _mutate(chance, ranks)
        contents = [encode(document) for document in ranks]
        victim = chance.randrange(len(contents))
        if mode < _TEXT or _PACKED < mode < _BOTH:
            contents[victim] = damage(chance, contents[victim], _encoded())
        elif mode < _PACKED:
            contents[victim] = damage_packed(chance, contents[victim])
        return _write(chance, folder, contents)

    def judge(self, target: Path) -> Outcome:
        """Analyse them as ``dtbench analyze`` does."""
        return judge_traces(target)


def _mutate(chance: random.Random, ranks: list[Document]) -> None:
    """Mutate one rank, another one each time, or all alike."""
    for _ in range(chance.choice(_COUNTS)):
        mutation = chance.choice(JSONS if chance.random() < 0.15 else MEANINGS)
        if chance.random() < 0.25:
            seed = chance.random()
            for document in ranks:
                mutation(random.Random(seed), document)
        else:
            mutation(chance, chance.choice(ranks))


@cache
def _encoded() -> tuple[bytes, ...]:
    return tuple(encode(document) for job in make_jobs().values() for document in job)


def _write(chance: random.Random, folder: Path, contents: list[bytes]) -> Path:
    names = chance.choice([["rank0.json", "rank1.json"]] * 5 + [["a.json", "b.json"], ["rank1.json", "rank0.json.gz"]])
    for name, content in zip(names, contents, strict=False):
        (folder / name).write_bytes(content)
    return folder if len(contents) > 1 else folder / names[0]
