"""Moments and ages as a person types them: ``2026-01-31``, ``30d``."""

import re
import time
from datetime import UTC, datetime
from typing import Final

import typer

from dtbench.base.units import NS_PER_S

_SECONDS: Final = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGE: Final = re.compile(r"(\d{1,6})([mhdw])")


def read_moment(typed: str) -> int:
    """Read when something was, ns since 1970: a date or a time (UTC where it names no zone), or how long ago.

    Raises:
        BadParameter: it is neither.
    """
    if _AGE.fullmatch(typed.strip()):
        return time.time_ns() - read_age(typed)
    try:
        moment = datetime.fromisoformat(typed.strip())
        told = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return int(told.timestamp()) * NS_PER_S
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(
            f"`{typed}` is no moment; write a date, 2026-01-31 or 2026-01-31T12:00 (UTC), or an age, 30d, 12h, 15m"
        ) from error


def read_age(typed: str) -> int:
    """Read how long ago something was, ns.

    Raises:
        BadParameter: it is no age.
    """
    found = _AGE.fullmatch(typed.strip())
    if found is None:
        raise typer.BadParameter(f"`{typed}` is no age; write 30d, 2w, 12h or 15m")
    return int(found[1]) * _SECONDS[found[2]] * NS_PER_S
