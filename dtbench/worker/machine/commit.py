"""At which commit a person's code was: what git says of the folder that it lies in."""

import os
import subprocess
from pathlib import Path
from typing import Final

from dtbench.store.records.run import Commit

_PATIENCE_S: Final = 5.0
"""For a repository of millions of files, or one on a slow disk: no run waits longer for what only its history needs."""

_GIT: Final = ("git", "-c", "core.fsmonitor=false")
"""Nothing that a repository's settings name is started, and nothing is written into it."""


def read_commit(folder: Path) -> Commit | None:
    """Return the commit of the repository that a folder lies in; None: it lies in none, or there is no git.

    Files that git does not track are no change: results lie there.
    """
    revision = _ask(folder, "rev-parse", "--verify", "HEAD")
    if not revision:
        return None
    changed = _ask(folder, "status", "--porcelain", "--untracked-files=no")
    return Commit(revision=revision, is_dirty=None if changed is None else bool(changed))


def _ask(folder: Path, *words: str) -> str | None:
    """Return what git answers; None: it does not."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        answer = subprocess.run(
            [*_GIT, "-C", str(folder), *words],
            capture_output=True,
            check=True,
            env={**variables, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=_PATIENCE_S,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return answer.stdout.strip()
