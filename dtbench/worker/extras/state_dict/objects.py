"""Tells the recorder which collectives carry Python objects: their sizes hang on pickle, and no formula says them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch.distributed as dist

from dtbench.worker.network.carrier import OBJECT_CALLS
from dtbench.worker.recording.recorder import Recorder


@contextmanager
def telling_objects(recorder: Recorder) -> Iterator[None]:
    """Mark what torch's object collectives issue."""
    with ExitStack() as patches:
        for home in (dist, dist.distributed_c10d):
            for name in OBJECT_CALLS:
                patches.enter_context(mock.patch.object(home, name, _marked(recorder, getattr(home, name))))
        yield


def _marked(recorder: Recorder, original: Callable[..., Any]) -> Callable[..., Any]:
    def exchange(*args: Any, **kwargs: Any) -> Any:
        before, recorder.is_object = recorder.is_object, True
        try:
            return original(*args, **kwargs)
        finally:
            recorder.is_object = before

    return exchange
