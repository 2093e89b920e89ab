"""When a device computed, communicated and copied, and the windows of its steps: what every account starts from.

::

    Trace -> nesting -> kinds -> DeviceTime -> overlap.measure_overlaps      compute, exposed communication, idle
                                           -> device_contents               whose, why, and everything else
"""

from collections.abc import Mapping
from dataclasses import dataclass

from dtbench.base.vocabulary import Kind
from dtbench.traces.device.kinds import device_kinds
from dtbench.traces.device.link import read_link
from dtbench.traces.device.main_lane import find_main_lane
from dtbench.traces.host.nesting import Nesting, find_nesting
from dtbench.traces.host.steps import Step, device_steps, find_extent, find_host_ranges
from dtbench.traces.kinds.kernels import KERNELS, KernelTable
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.intervals import Bools, Intervals, unite
from dtbench.traces.trace import Trace


@dataclass(frozen=True)
class DeviceTime:
    """When each kind ran, and in which windows: enough for ``measure_overlaps``, and what all else starts from.

    Attributes:
        trace: with what an emulated link carried where its lane served it.
        nesting: of the trace.
        masks: for each kind shape ``(n,)``, its device events.
        kinds: union of the spans of each kind.
        whole: first start to last end of the device events.
        steps: in order of time.
    """

    trace: Trace
    nesting: Nesting
    masks: Mapping[Kind, Bools]
    kinds: Mapping[Kind, Intervals]
    whole: Window
    steps: tuple[Step, ...]


def find_device_time(trace: Trace, kernels: KernelTable = KERNELS) -> DeviceTime:
    """Find what ran on the device when, and the steps.

    Raises:
        TraceError: nothing in the trace computes, copies or communicates.
    """
    nesting = find_nesting(trace)
    trace, masks = read_link(trace, nesting, device_kinds(trace, nesting, kernels))
    kinds = {kind: unite(trace.start_ns[mask], trace.end_ns[mask]) for kind, mask in masks.items()}
    whole = find_extent(trace, kinds)
    lane = find_main_lane(trace, masks[Kind.COMPUTE])
    steps = tuple(device_steps(trace, nesting, find_host_ranges(trace), whole.end_ns, lane))
    return DeviceTime(trace, nesting, masks, kinds, whole, steps)
