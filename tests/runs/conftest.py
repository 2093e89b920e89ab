"""Traces for the tests of runs: those of ``tests/traces``."""

from tests.traces.conftest import draw, recorded

__all__ = ["draw", "recorded"]
