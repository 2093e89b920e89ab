"""Whether the kernel has ended processes for lack of memory: of this control group, else of the whole machine."""

from contextlib import suppress
from pathlib import Path
from typing import Final

_COUNTER: Final = "oom_kill"


def read_oom_kills(root: Path = Path("/proc"), control: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return how many there have been; None where the system does not say.

    By ``memory.events`` of version 2 of control groups, ``memory.oom_control`` of version 1, else ``/proc/vmstat``.
    """
    places = [*_find_groups(root, control), root / "vmstat"]
    return next((found for path in places if (found := _read_counter(path)) is not None), None)


def count_oom_kills(before: int | None) -> int | None:
    """Return how many there have been since there were ``before``; None where the system does not say."""
    return None if before is None else (read_oom_kills() or before) - before


def _find_groups(root: Path, control: Path) -> list[Path]:
    found = []
    with suppress(OSError):
        for line in (root / "self" / "cgroup").read_text(encoding="utf-8", errors="replace").splitlines():
            number, controllers, group = [*line.split(":", 2), "", ""][:3]
            below = group.lstrip("/")
            if number == "0" and not controllers:
                found.append(control / below / "memory.events")
            elif "memory" in controllers.split(","):
                found.append(control / "memory" / below / "memory.oom_control")
    return found


def _read_counter(path: Path) -> int | None:
    with suppress(OSError):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(" ")
            if name == _COUNTER and value.strip().isdigit():
                return int(value)
    return None
