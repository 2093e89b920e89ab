"""A spin takes the time that it is given, on a clock whose rate is found out first."""

import pytest

pytest.importorskip("torch", reason="the worker room imports torch")

from dtbench.base.units import NS_PER_MS
from dtbench.worker.machine.spin import Spin
from tests.worker.fake_cuda import FakeCuda


def test_a_spin_is_calibrated_on_a_clock_that_has_left_its_idle_rate() -> None:
    cuda = FakeCuda(1.7, warm_after_ns=300 * NS_PER_MS)
    spin = Spin(cuda)
    assert max(spin.try_out(20 * NS_PER_MS, 3)) < 1000
    before_ns = cuda.default.free_ns
    spin.take(20 * NS_PER_MS)
    assert cuda.default.free_ns - before_ns == pytest.approx(20 * NS_PER_MS, rel=1e-6)


def test_a_clock_that_changed_since_shows_in_trials_and_afterwards() -> None:
    cuda = FakeCuda(1.7)
    spin = Spin(cuda)
    spin.take(NS_PER_MS)
    cuda.cycles_per_ns *= 0.9
    assert list(spin.try_out(90 * NS_PER_MS, 2)) == pytest.approx([10 * NS_PER_MS] * 2, rel=1e-3)
    assert spin.look_back(90 * NS_PER_MS) == pytest.approx([100 * NS_PER_MS] * 5, rel=1e-3)


def test_a_spin_that_was_calibrated_takes_its_time_and_no_more() -> None:
    cuda = FakeCuda()
    spin = Spin(cuda)
    spin.calibrate()
    tries = len(cuda.ran)
    stream = cuda.Stream()
    with cuda.stream(stream):
        spin.take(3 * NS_PER_MS)
    (one,) = cuda.ran[tries:]
    assert (one.stream, one.end_ns - one.start_ns) == ("stream 1", 3 * NS_PER_MS)
