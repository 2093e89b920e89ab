"""The torch profiler around PROFILED steps: what it records on each device, and where the trace goes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from dtbench.store.write import replace_file
from dtbench.vocabulary import DeviceKind
from dtbench.worker.recorder import Recorder


@contextmanager
def capture(device: DeviceKind, recorder: Recorder, trace: Path) -> Iterator[None]:
    """Profile what runs inside and write one trace; collectives and regions get their named ranges meanwhile.

    On CPU shapes are recorded, since a gloo span says its size in no other way, and all threads are, since gloo's own
    threads carry the transfers.
    """
    activities = [ProfilerActivity.CPU]
    if device is DeviceKind.CUDA:
        activities.append(ProfilerActivity.CUDA)
        profiler = profile(activities=activities)
    else:
        threads = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
        profiler = profile(activities=activities, record_shapes=True, experimental_config=threads)
    recorder.is_naming = True
    try:
        with profiler:
            yield
            if device is DeviceKind.CUDA:
                torch.cuda.synchronize()
    finally:
        recorder.is_naming = False
    # torch compresses when the name ends in .gz; the temporary name must end so too
    replace_file(trace, lambda temporary: _export(profiler, temporary))


def _export(profiler: profile, temporary: Path) -> None:
    compressed = temporary.with_name(temporary.name + ".gz")
    try:
        profiler.export_chrome_trace(str(compressed))
        compressed.replace(temporary)
    finally:
        compressed.unlink(missing_ok=True)
