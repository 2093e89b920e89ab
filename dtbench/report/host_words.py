"""The words of a device that waits for the host, said first where that is the larger loss."""

from dtbench.analyze.overlap import divide
from dtbench.units import format_fraction, format_ns


def describe_host(*, host_ns: float, sync_ns: float, comm_ns: float, exposed_ns: float, step_ns: float, of: str) -> str:
    """Say how long a device waits for the host, ending in "; "; empty where communication is the larger loss.

    What is exposed while the host is late is no loss of communication's: less of it would end no step earlier.

    Args:
        host_ns: for which the compute stream stood still because nothing was launched yet, a mean like all others.
        sync_ns: part of it, in calls that wait for the device; NaN: not known.
        comm_ns: for which it stood still until a collective ended, or may have: nobody knows what was launched.
        exposed_ns: in which communication ran beside no compute.
        step_ns: the whole.
        of: which that is, in words.
    """
    if host_ns <= max(comm_ns, exposed_ns - host_ns):
        return ""
    share = format_fraction(divide(host_ns, step_ns))
    sync = f", {format_ns(sync_ns)} of that in synchronising calls" if sync_ns > 0 else ""
    return (
        f"the device waits {format_ns(host_ns)} of {of} for the host ({share}){sync}, longer than for communication; "
    )
