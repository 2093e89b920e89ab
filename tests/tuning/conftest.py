"""What tests of tuning share: cells of known cost, and scenarios of them."""

from tests.conftest import scenario
from tests.runs.conftest import cell

__all__ = ["cell", "scenario"]
