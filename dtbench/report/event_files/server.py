"""How to start TensorBoard on event files that are already there; nothing heavy is imported."""

import sys
from pathlib import Path


def tensorboard_command(folder: Path, *, host: str, port: int) -> list[str]:
    """Return the command that serves every run and event file below a folder, with the TensorBoard of this interpreter.

    ``-P``: what lies in the folder that a person stands in is not imported.
    """
    return [
        sys.executable,
        "-P",
        "-m",
        "tensorboard.main",
        "--logdir",
        str(folder),
        "--host",
        host,
        "--port",
        str(port),
    ]


def has_event_files(folder: Path) -> bool:
    """Tell whether TensorBoard would find anything below a folder."""
    return next(folder.rglob("*tfevents*"), None) is not None
