"""TensorBoard's event files: values, records, and how a folder of them is replaced under a TensorBoard that reads it.

Only TensorBoard's protobufs and its record framing are used: its ``summary`` functions need TensorFlow, and its event
writer imports it where there is one.

[Note: replacing what TensorBoard reads] While TensorBoard watches a folder, the folder is replaced as a whole. What its
two loaders make of that (tried with TensorBoard 2.21):

* the data server (the default where a package of it exists: x86): takes up every new file, and a step that comes again
  replaces the older value;
* the loader in Python (elsewhere): goes from one file to the next by *name*, and stands still for good when the file
  that it stands on is gone. So the name of the latest old file stays, as a file without events; and new files begin
  with a start mark, at which this loader forgets what it has read before.

Files get a name that TensorBoard looks for only when all of them are written.
"""

import shutil
import struct
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import DATA_CLASS_TENSOR, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.record_writer import RecordWriter

from dtbench.base.units import NS_PER_S

_RGBA = 4
Tagged = tuple[int, Summary.Value]
"""A step and what is said of it."""

_SEEN: Final = "events.out.tfevents."
"""How the name of a file begins that TensorBoard reads."""
_UNSEEN: Final = "unfinished."


def scalar(tag: str, number: float) -> Summary.Value:
    """Return a number."""
    return Summary.Value(tag=tag, simple_value=number)


def image(tag: str, png: bytes) -> Summary.Value:
    """Wrap a PNG; its size stands in the first chunk, width and height at bytes 16 to 24 (PNG, RFC 2083, 11.2.1)."""
    width, height = struct.unpack(">II", png[16:24])
    value = Summary.Image(height=height, width=width, colorspace=_RGBA, encoded_image_string=png)
    return Summary.Value(tag=tag, image=value)


def text(tag: str, markdown: str) -> Summary.Value:
    """Wrap Markdown as a string tensor of rank 0; of rank 1 TensorBoard would draw a table around it."""
    metadata = SummaryMetadata(
        plugin_data=SummaryMetadata.PluginData(plugin_name="text"),
        data_class=DATA_CLASS_TENSOR,
    )
    tensor = TensorProto(dtype=DT_STRING, tensor_shape=TensorShapeProto(), string_val=[markdown.encode()])
    return Summary.Value(tag=tag, metadata=metadata, tensor=tensor)


def write_events(folder: Path, values: Iterable[Tagged]) -> None:
    """Write one event file inside ``replace_folder``; its name carries the time, so that later ones come later."""
    folder.mkdir(parents=True, exist_ok=True)
    unix_ns = time.time_ns()
    wall_time = unix_ns / NS_PER_S
    with (folder / f"{_UNSEEN}{unix_ns}.dtbench").open("wb") as file:
        records = RecordWriter(file)
        records.write(_version(wall_time).SerializeToString())
        records.write(Event(wall_time=wall_time, session_log=SessionLog(status=SessionLog.START)).SerializeToString())
        for step, value in values:
            event = Event(wall_time=wall_time, step=step, summary=Summary(value=[value]))
            records.write(event.SerializeToString())


def replace_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a new folder with event files and put it in the place of ``folder``, at once or not at all.

    See [Note: replacing what TensorBoard reads].
    """
    unfinished, replaced = folder.with_name(f".{folder.name}.new"), folder.with_name(f".{folder.name}.old")
    for leftover in (unfinished, replaced):  # of a process that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        unfinished.mkdir(parents=True)
        write(unfinished)
        written = sorted(unfinished.rglob(f"{_UNSEEN}*"))
        for file in written:
            _keep_name(folder / file.parent.relative_to(unfinished), file.parent)
        for file in written:
            file.rename(file.with_name(_SEEN + file.name.removeprefix(_UNSEEN)))
        if folder.exists():
            folder.rename(replaced)
        unfinished.rename(folder)
    finally:
        for leftover in (unfinished, replaced):
            shutil.rmtree(leftover, ignore_errors=True)


def _keep_name(old: Path, new: Path) -> None:
    """Put a file without events, named as the latest of the old folder, into the new one."""
    latest = max(old.glob(f"{_SEEN}*"), default=None, key=lambda file: file.name)
    if latest is not None:
        with (new / latest.name).open("wb") as file:
            RecordWriter(file).write(_version(latest.stat().st_mtime).SerializeToString())


def _version(wall_time: float) -> Event:
    return Event(wall_time=wall_time, file_version="brain.Event:2")
