"""What a person's loop is measured with, and what was found out of it so far."""

from dataclasses import dataclass, field
from pathlib import Path

from dtbench.base.vocabulary import Phase
from dtbench.scenario.schema.scenario import Profiler
from dtbench.store.journal import JournalWriter
from dtbench.store.records.rank import Memory, WarmupEnd
from dtbench.store.records.run import OwnLoop
from dtbench.worker.recording.events import Events
from dtbench.worker.recording.recorder import Issue, Recorder
from dtbench.worker.user_loop.peers import Peers
from dtbench.worker.user_loop.run import OwnRun


@dataclass(frozen=True)
class LoopContext:
    """What every part of measuring a loop works with.

    Attributes:
        trace: where that of the PROFILED steps goes.
        settings: of the profiler.
    """

    run: OwnRun
    peers: Peers
    recorder: Recorder
    journal: JournalWriter
    events: Events
    trace: Path
    settings: Profiler


@dataclass
class Found:
    """What is known of a loop, as far as training came.

    Attributes:
        loop: what it says of itself; a step is a whole period of its steps, once that is known.
        names: of each process group, the axis of a mesh that it is.
        step: number of the next step.
        phase: of that, or of the step that runs.
        time_to_first_step_ns: from the start of the process to the end of the first step; 0: none has ended.
        warmup: how it ended; None: it has not.
        memory: of the MEASURED steps; None: they have not ended.
        issues: collectives of each MEASURED step.
        bucket_bytes: sizes of DDP's buckets in each step of warm-up, bytes.
    """

    loop: OwnLoop
    names: dict[str, str]
    step: int = 0
    phase: Phase = Phase.WARMUP
    time_to_first_step_ns: int = 0
    warmup: WarmupEnd | None = None
    memory: Memory | None = None
    issues: list[tuple[Issue, ...]] = field(default_factory=list)
    bucket_bytes: list[tuple[int, ...]] = field(default_factory=list)
