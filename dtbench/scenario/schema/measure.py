"""What ``measure:`` may say: the steps of each phase, and how they are watched."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from dtbench.base.record import Record
from dtbench.seeds.functions import ALL, FILES, is_choice, stem_of


class Warmup(Record):
    """Warm-up ends when communication and step time are seen to be stable, not after a fixed count."""

    min_steps: Annotated[int, Field(ge=8)] = 8
    """At least this many; the first steps are also the ones that are checked against a single process."""
    max_steps: Annotated[int, Field(gt=0, le=100_000)] = 60
    """Give up waiting for a stable step time, and say so in the report."""

    @model_validator(mode="after")
    def _ordered(self) -> "Warmup":
        if self.max_steps < self.min_steps:
            raise ValueError(f"max_steps ({self.max_steps}) is below min_steps ({self.min_steps})")
        return self


class Profiler(Record):
    """Options of ``torch.profiler`` for PROFILED steps, under torch's names: what each adds to a trace, and its cost.

    Costs: CPU time of a step and size of the compressed trace over those of the default, medians of interleaved rounds
    of ``tests/benchmarks/profiler_cost.py`` on 2 CPU cores with torch 2.13 and the quickstart's transformer (130 kB of
    trace a step); equal runs differ by 2 % of CPU time. Left out on purpose: ``with_flops`` adds only what
    ``record_shapes`` does to a trace, ``with_modules`` nothing to a model that is not TorchScript (both tried).
    """

    record_shapes: bool | None = None
    """Shapes and dtypes of operators' inputs; left out: on CPU only, where gloo says its sizes in no other way.

    Cost: 3 % of CPU time, a trace 1.25 times as large.
    """
    with_stack: bool = False
    """Every Python call and ``nn.Module`` call as an event of its own, to see which line a wait comes from.

    Cost: 4 % of CPU time, a trace 1.33 times as large, 1.3 times the time to write it; more where Python does more.
    """
    profile_memory: bool = False
    """Every allocation as a ``[memory]`` event (CUDA only: torch notes none while it profiles all threads).

    Cost: not measured on a GPU; nothing on CPU.
    """
    record_python_gc_info: bool = False
    """Python's garbage collections, which hold one rank back while the others wait; needs ``with_stack``.

    Cost: none that can be told beside that of ``with_stack``.
    """
    capture_overload_names: bool = False
    """Operators with their overload: ``aten::add_.Tensor``.

    Cost: no CPU time that can be told, a trace 1.01 times as large.
    """
    enable_cuda_sync_events: bool = False
    """Device, stream and event synchronisations as events: what the host waited for (CUDA only).

    Cost: not measured on a GPU; nothing on CPU.
    """

    @model_validator(mode="after")
    def _consistent(self) -> "Profiler":
        if self.record_python_gc_info and not self.with_stack:
            raise ValueError("record_python_gc_info records nothing without with_stack; set both")
        return self


def _spell_probes(value: object) -> object:
    """Return the list that ``true`` and ``false`` stand for."""
    match value:
        case True:
            return (ALL,)
        case False:
            return ()
        case list():
            return tuple(value)
        case _:
            return value


def _check_probe(name: str) -> str:
    if not is_choice(name):
        files = ", ".join(stem_of(file) for file in FILES)
        raise ValueError(
            f"no function under study is called `{name}`; it takes files ({files}) and functions in them as "
            "`dtbench coverage` lists them, or true for all"
        )
    return name


Probed = Annotated[
    tuple[Annotated[str, AfterValidator(_check_probe)], ...],
    BeforeValidator(_spell_probes),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "string"}}]}),
]


class Measure(Record):
    """How many steps of each phase, and how to watch them."""

    warmup: Warmup = Warmup()
    measured_steps: Annotated[int, Field(ge=4, le=100_000)] = 20
    """Steps without profiler; throughput comes only from these."""
    profiled_steps: Annotated[int, Field(gt=0, le=1_000)] = 5
    """Steps under the profiler; overlap comes only from these."""
    profiler: Profiler = Profiler()
    """What the profiler records in PROFILED steps."""
    exposure: tuple[Literal["trace", "ablation", "wait"], ...] = ("trace",)
    """By which independent ways exposed communication is estimated; with more than one the report says whether they
    agree. ``ablation`` and ``wait`` take steps of their own, after the PROFILED ones: with communication as it is, and
    without it, about ``measured_steps`` each; ``ablation`` (gloo only) as many again in which every collective is
    waited for at once."""
    probes: Probed = ()
    """Functions under study to count, time and name in the trace: true for all, or a list of files (``fsdp``) and
    functions (``_data_parallel_utils.sync_grad_hook``)."""
    line_coverage: bool = False
    """Note which lines of the files under study run, by the interpreter's own tracing; for launches of its own, whose
    times are not to be used."""
    stall_timeout_s: Annotated[float, Field(gt=0, le=1_000_000)] = 120.0
    """A rank that shows no progress for this long is declared hung and the launch ends."""
    quiet_timeout_s: Annotated[float, Field(ge=0, le=86_400)] = 0.0
    """How long a launch may wait in all for other guests of the machine to leave its cores alone: before MEASURED
    and before PROFILED steps, and to run a phase or a block of ``exposure`` again of which they left fewer than three
    steps alone. 0: not at all."""
