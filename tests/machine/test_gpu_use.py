"""Who had the GPUs, as a driver that the test makes up tells it."""

import sys
from typing import Any

import pytest

from dtbench.machine.gpu_use import GpuSample, GpuTaker, GpuWatch, open_gpus
from tests.made_nvml import MadeGpu, MadeNvml, NVMLError

NOW_US = 1_800_000_000_000_000
RANK0, RANK1, TRAIN, NOTEBOOK, HIDDEN = 21, 22, 30, 31, 99
NAMES = {TRAIN: "python train.py", NOTEBOOK: "python -m ipykernel"}


def look(*gpus: MadeGpu, ranks: tuple[int, ...] = (RANK0, RANK1), is_old: bool = False) -> tuple[GpuSample, ...]:
    watch = GpuWatch(MadeNvml(*gpus, is_old=is_old), now_unix_ns=lambda: NOW_US * 1000)
    return watch.look(lambda pid: pid in ranks, NAMES.get)


def ran(pid: int, percent: int, *, ago_us: int = 200_000) -> tuple[int, int, int]:
    return pid, NOW_US - ago_us, percent


def test_only_gpus_with_ranks_are_looked_at_and_others_on_them_are_named() -> None:
    first = MadeGpu(computing=[RANK0, TRAIN], drawing=[NOTEBOOK], samples=[ran(RANK0, 60), ran(TRAIN, 35)])
    foreign = MadeGpu(computing=[TRAIN], samples=[ran(TRAIN, 100)])
    last = MadeGpu(name=b"Tesla T4", computing=[RANK1], samples=[ran(RANK1, 90)])
    assert look(first, foreign, last) == (
        GpuSample(
            index=0,
            name="NVIDIA H100 80GB HBM3",
            ranks_share=0.6,
            others=(
                GpuTaker(pid=TRAIN, name="python train.py", share=0.35),
                GpuTaker(pid=NOTEBOOK, name="python -m ipykernel", share=0.0),
            ),
            clock_mhz=1980,
            most_clock_mhz=1980,
            held_back=(),
        ),
        GpuSample(
            index=2,
            name="Tesla T4",
            ranks_share=0.9,
            others=(),
            clock_mhz=1980,
            most_clock_mhz=1980,
            held_back=(),
        ),
    )


def test_a_share_is_the_mean_of_the_last_second_and_older_samples_say_nothing() -> None:
    samples = [ran(RANK0, 80), ran(TRAIN, 50), ran(TRAIN, 30, ago_us=600_000), ran(TRAIN, 100, ago_us=2_000_000)]
    (gpu,) = look(MadeGpu(computing=[RANK0, TRAIN], samples=samples))
    assert [one.share for one in gpu.others] == pytest.approx([0.4])


@pytest.mark.parametrize(
    ("samples", "taken"),
    [
        ([ran(RANK0, 60), ran(TRAIN, 35)], 0.35),
        ([ran(RANK0, 10), ran(TRAIN, 90)], 0.1),
        ([ran(TRAIN, 90)], 0.0),
        ([ran(RANK0, 100), ran(TRAIN, 60), ran(NOTEBOOK, 60)], 1.0),
        ([], 0.0),
    ],
)
def test_others_count_as_far_as_ranks_wanted_the_gpu_too(samples: list[tuple[int, int, int]], taken: float) -> None:
    (gpu,) = look(MadeGpu(computing=[RANK0, TRAIN, NOTEBOOK], samples=samples))
    assert gpu.taken == pytest.approx(taken)


def test_what_a_driver_does_not_tell_is_not_nothing() -> None:
    shared, alone = MadeGpu(computing=[RANK0, HIDDEN], tells=False), MadeGpu(computing=[RANK1], tells=False)
    first, second = look(shared, alone)
    assert first.others == (GpuTaker(pid=HIDDEN, name=None, share=None),)
    assert (first.taken, first.clock_mhz, first.held_back) == (None, None, None)
    assert second.taken == 0.0, "nobody else is there: that is seen"


def test_a_driver_that_numbers_processes_differently_lists_no_rank() -> None:
    assert look(MadeGpu(computing=[40001, 40002], samples=[ran(40001, 90)])) == ()


@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        (0x0, ()),
        (0x1 | 0x2 | 0x10 | 0x100, ()),
        (0x4, ("its limit on power",)),
        (0x20 | 0x40, ("heat",)),
        (0x8 | 0x80, ("a slowdown by hardware: heat, or too little power", "the power supply")),
    ],
)
def test_what_holds_clocks_back_has_words(reasons: int, words: tuple[str, ...], *, is_old: bool) -> None:
    (gpu,) = look(MadeGpu(computing=[RANK0], reasons=reasons), is_old=is_old)
    assert gpu.held_back == words


def test_a_driver_that_does_not_answer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise NVMLError("Driver/library version mismatch")

    made: Any = MadeNvml()
    made.nvmlInit = fail
    monkeypatch.setitem(sys.modules, "pynvml", made)
    assert open_gpus() == "NVIDIA's driver does not answer: Driver/library version mismatch"
    monkeypatch.setitem(sys.modules, "pynvml", MadeNvml(MadeGpu()))
    assert isinstance(open_gpus(), GpuWatch)


def test_without_the_library_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert open_gpus() == "nvidia-ml-py is not installed"
