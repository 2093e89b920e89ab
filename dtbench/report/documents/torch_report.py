"""In what an installed torch differs from the one that dtbench was tested with, as one JSON document."""

from dataclasses import asdict

from dtbench.base.document import Schema, make_schema
from dtbench.base.record_schema import Typed
from dtbench.worker.torch_facts.compare import TorchReport


def document(report: TorchReport) -> dict[str, object]:
    """Return the document."""
    return asdict(report)


def schema() -> Schema:
    """Return its JSON Schema."""
    return make_schema("dtbench doctor --torch --json", Typed(TorchReport))
