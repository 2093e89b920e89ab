"""What a device lost more time to than to communication, said first: waiting for the host, and copies."""

from dataclasses import dataclass
from typing import Final

from dtbench.base.units import format_fraction, format_ns
from dtbench.report.words.marks import format_least
from dtbench.traces.time.overlap import divide

_LEAST_COPIED: Final = 0.01
"""Part of a step below which copies are no loss worth a word."""


@dataclass(frozen=True)
class HostWait:
    """How long a device waits for the host, ns: means like all others.

    Attributes:
        host_ns: for which the compute stream stood still because nothing was launched yet, as far as that is known.
        sync_ns: part of it, in calls that wait for the device; NaN: not known.
        unknown_ns: for which it stood still and it is not known whether the next work was launched; NaN: not known.
    """

    host_ns: float
    sync_ns: float
    unknown_ns: float


def describe_host(host: HostWait, *, comm_ns: float, exposed_ns: float, step_ns: float, of: str) -> str:
    """Say how long a device waits for the host, ending in "; "; empty where communication is the larger loss.

    What is exposed while the host is late is no loss of communication's: less of it would end no step earlier.

    Args:
        host: how long it waits for it; at least that, where what is not known would make it read otherwise.
        comm_ns: for which it stood still until a collective ended, or may have: it is not known what was launched.
        exposed_ns: in which communication ran beside no compute.
        step_ns: the whole.
        of: which that is, in words.
    """
    if host.host_ns <= max(comm_ns, exposed_ns - host.host_ns):
        return ""
    said = format_least(host.host_ns, host.unknown_ns)
    share, whole = (
        format_fraction(divide(time_ns, step_ns)) for time_ns in (host.host_ns, host.host_ns + host.unknown_ns)
    )
    share = share if share == whole else f"at least {share}"
    sync = f", {format_least(host.sync_ns, host.unknown_ns)} of that in synchronising calls" if host.sync_ns > 0 else ""
    both_ns = host.host_ns + exposed_ns - step_ns
    same = f", and at least {format_ns(both_ns)} of that while communication was exposed" if both_ns > 0 else ""
    return f"the device waits {said} of {of} for the host ({share}){sync}, longer than for communication{same}; "


def describe_copies(*, copy_ns: float, exposed_ns: float, step_ns: float, of: str) -> str:
    """Say how long a device only copied, ending in "; "; empty where exposed communication is the larger loss.

    Args:
        copy_ns: in which copies ran beside neither compute nor communication, a mean like all others.
        exposed_ns: in which communication ran beside no compute.
        step_ns: the whole.
        of: which that is, in words.
    """
    if copy_ns <= max(exposed_ns, _LEAST_COPIED * step_ns):
        return ""
    share = format_fraction(divide(copy_ns, step_ns))
    return f"copies alone take {format_ns(copy_ns)} of {of} ({share}), longer than communication is exposed; "
