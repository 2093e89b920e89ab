"""What a trace holds before anything is counted: the same for device traces and CPU traces.

``device_contents.py`` and ``cpu_contents.py`` find it, ``trace_analysis.py`` accounts for it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dtbench.base.vocabulary import Kind
from dtbench.traces.account.accounts import Sources
from dtbench.traces.account.waits import Wait
from dtbench.traces.causes.untold import Prepared
from dtbench.traces.device.clock import DeviceClock
from dtbench.traces.device.kinds import PeerCopies
from dtbench.traces.device.lost_kernels import Lost
from dtbench.traces.device.streams import MixedStreams
from dtbench.traces.host.correlate import Uncorrelated
from dtbench.traces.host.steps import Step
from dtbench.traces.kinds.unknown import UnknownName
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.intervals import Intervals, Ints
from dtbench.traces.who.collectives import Collective, Launch, Regions


@dataclass(frozen=True)
class Contents:
    """What both kinds of trace are reduced to.

    Attributes:
        is_device: communication lies on device streams; False: on threads (gloo).
        kinds: union of the spans of each kind.
        whole: first start to last end of the spans that have a kind.
        steps: in order of time.
        collectives: as the trace says them, in order of start; on CPU of issue.
        compute_starts_ns: shape ``(m,)``, rising, start of every compute event that takes time.
        compute_launches_ns: shape ``(2, m)``, when the same event was launched, at the earliest and at the latest.
        sources: of the finer accounts.
        regions: what the training loop was doing when.
        prepare: fills in what causes need and no event of a collective says; see ``causes/``.
        waits: in which consumers stood still; empty on a device, whose collectives say it themselves.
        uncorrelated: device events that are tied to no single operator.
        unknown_names: kernels counted as compute that sound like communication.
        unseen: collectives that were launched and whose kernels the trace lacks.
        names_on_comm_lanes: kernels counted as compute that no rule knows, on lanes where most is communication.
        names_apart: where nothing communicates, those, longest first, that never ran on the main lane.
        recorded: when what computes was recorded; None: always. Elsewhere it is not known what was hidden.
        lost: kernels that were launched and are not in the trace.
        clock: whether the device's times fit the host's.
        peer_copies: copies between devices that may be communication.
        mixed_streams: what cannot have run on one stream and lies on one lane: of such a trace no stream is told.
    """

    is_device: bool
    kinds: Mapping[Kind, Intervals]
    whole: Window
    steps: tuple[Step, ...]
    collectives: tuple[Collective, ...]
    compute_starts_ns: Ints
    compute_launches_ns: Ints
    sources: Sources
    regions: Regions
    prepare: Callable[[Sequence[Collective]], Prepared]
    waits: tuple[Wait, ...] = ()
    uncorrelated: Uncorrelated = field(default_factory=Uncorrelated)
    unknown_names: tuple[tuple[str, int], ...] = ()
    names_on_comm_lanes: tuple[UnknownName, ...] = ()
    names_apart: tuple[str, ...] = ()
    unseen: tuple[Launch, ...] = ()
    recorded: Intervals | None = None
    lost: Lost = field(default_factory=Lost)
    clock: DeviceClock = field(default_factory=DeviceClock)
    peer_copies: PeerCopies = field(default_factory=PeerCopies)
    mixed_streams: MixedStreams = field(default_factory=MixedStreams)
