"""What one torch has and does, as named facts: small enough to read, equal for equal torches."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

FORMAT_VERSION: Final = 1
TESTED: Final = Path(__file__).with_name("tested")
"""Where the facts of tested torches lie, a file for each release: ``2.13.json``."""
ABSENT: Final = "absent"
"""What is said of a name that dtbench uses and this torch has not: of another version, or of another build."""
CLASS_OF: Final = "class of "
"""What is said of a class begins so; its module follows."""
KNOBS: Final = (
    *("torch.distributed", "torch.nn.parallel", "torch.optim", "torch.profiler"),
    "torch._C._distributed_c10d",
)
"""Where classes are that people set knobs of: all their public methods are looked at, so that a new one is seen."""


def is_enumerated(said: str) -> bool:
    """Tell by what is said of a name whether it is a class whose members are all looked at."""
    return said.startswith(CLASS_OF) and said.removeprefix(CLASS_OF).startswith(KNOBS)


class Kind(StrEnum):
    """What a fact is about."""

    NAME = "name"
    PARAMETER = "parameter"
    MEMBER = "enum member"
    ATTRIBUTE = "private attribute"
    ENGINE = "engine"
    CONFIG = "configuration"
    VARIABLE = "environment variable"
    TRACE = "trace name"
    FIELD = "trace field"
    WIRE = "dtype on the wire"


@dataclass(frozen=True)
class Facts:
    """What one torch has.

    Attributes:
        torch: its version.
        cuda: what it is built for; None: for CPU.
        facts: for each kind, what is said of each name.
    """

    torch: str
    cuda: str | None
    facts: Mapping[Kind, Mapping[str, str]]

    def count(self) -> int:
        """Count what was looked at."""
        return sum(map(len, self.facts.values()))


def spell_facts(facts: Facts) -> str:
    """Spell facts as a JSON document, a line for each, sorted: what changed between two is what ``diff`` shows."""
    document = {"format_version": FORMAT_VERSION, **asdict(facts)}
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def read_facts(path: Path) -> Facts:
    """Read what ``spell_facts`` spelled.

    Raises:
        ValueError: this is no such document.
    """
    document = json.loads(path.read_text(encoding="utf-8"))
    if document.get("format_version") != FORMAT_VERSION:
        raise ValueError(f"{path}: not in format {FORMAT_VERSION}")
    facts = {Kind(kind): dict(known) for kind, known in document["facts"].items()}
    return Facts(document["torch"], document["cuda"], facts)
