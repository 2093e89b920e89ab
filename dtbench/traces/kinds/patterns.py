"""A user's own kernel names, asked before the table of kernels; ``pattern_file.py`` reads them."""

import re

from pydantic import field_validator

from dtbench.base.record import Record
from dtbench.base.vocabulary import Kind, Operation


class KernelPattern(Record):
    """What kernels of a name are; ``operation`` None: as their names say."""

    pattern: str
    kind: Kind
    operation: Operation | None = None

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"no regular expression: {error}") from error
        return pattern
