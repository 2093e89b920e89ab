"""What was asked for on both sides: fields of the scenario, dotted, as text."""

from collections.abc import Mapping

from dtbench.base.redaction import redact_field
from dtbench.comparison.comparison import SettingChange
from dtbench.scenario.flat_fields import ABSENT


def find_treatment(
    baseline: Mapping[str, str] | None, candidate: Mapping[str, str] | None
) -> tuple[SettingChange, ...]:
    """Return every field in which two sides differ; none where one of them is traces, which say nothing of it."""
    if baseline is None or candidate is None:
        return ()
    names = dict.fromkeys((*baseline, *candidate))
    pairs = ((name, baseline.get(name, ABSENT), candidate.get(name, ABSENT)) for name in names)
    return tuple(
        SettingChange(field=name, baseline=redact_field(name, before), candidate=redact_field(name, after))
        for name, before, after in pairs
        if before != after
    )
