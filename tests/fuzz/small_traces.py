"""Small traces that the deep analysis understands, some tens of events each: what mutations start from.

A job is the documents of its ranks. Some are made by hand, some are what the other tests keep, some are one step of a
recorded trace.
"""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

Document = dict[str, Any]
Event = dict[str, Any]

_KEPT: Final = Path(__file__).parent.parent / "traces"
_MOST_EVENTS: Final = 120
_TELLING: Final = ("c10d::", "record_param_comms", "nccl:", "gloo:", "autograd::engine", "FSDP", "wait")
"""Words in names of operators without which the analysis of a step is another one."""


@cache
def make_jobs() -> Mapping[str, tuple[Document, ...]]:
    """Return every job by name; nobody may change them."""
    recorded = _KEPT / "recorded"
    return {
        "fsdp": (make_fsdp_rank(0), make_fsdp_rank(1, shift_us=37)),
        "fsdp_alone": (make_fsdp_rank(0),),
        "ddp": (make_ddp_rank(0), make_ddp_rank(1, shift_us=210)),
        "ddp_alone": (make_ddp_rank(1),),
        "gloo": (make_gloo_rank(0), make_gloo_rank(1, shift_us=-150)),
        "gloo_ddp_recorded": (_cut_step(_read(recorded / "ddp_2ranks_rank0.json.gz"), 1),),
        "gloo_fsdp_recorded": (_cut_step(_read(recorded / "fsdp2_tp_2x2_rank0.json.gz"), 1),),
        "queues": tuple(_read(path) for path in sorted((recorded / "one_hardware_queue/queue8").iterdir())),
        "at_once": tuple(_read(path) for path in sorted((recorded / "two_ranks_one_gpu/at_once").iterdir())),
        "pipeline": tuple(_read(path) for path in sorted((recorded / "two_ranks_one_gpu/sendrecv").iterdir())),
        **{path.stem: (_read(path),) for path in sorted((_KEPT / "cases").glob("*.json"))},
    }


def _read(path: Path) -> Document:
    content = path.read_bytes()
    document: Document = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    return document


def _cut_step(document: Document, index: int) -> Document:
    """Return what is recorded of one step, the longest operators and all that tells of communication."""
    events: list[Event] = document["traceEvents"]
    steps = [one for one in events if str(one.get("name")).startswith("ProfilerStep") and one["ph"] == "X"]
    start, end = steps[index]["ts"], steps[index]["ts"] + steps[index]["dur"]
    inside = [one for one in events if one["ph"] == "X" and start <= one["ts"] <= end]
    must = [
        one for one in inside if one.get("cat") != "cpu_op" or any(word in one["name"].lower() for word in _TELLING)
    ]
    rest = sorted((one for one in inside if one not in must), key=lambda one: -one["dur"])
    kept = sorted(must + rest[: max(0, _MOST_EVENTS - len(must))], key=lambda one: one["ts"])
    return {**document, "traceEvents": kept + [one for one in events if one["ph"] == "M"][:4]}


class _Drawn:
    """Events of one rank in the making, with the launches of what runs on its device."""

    def __init__(self, shift_us: float) -> None:
        self.events: list[Event] = []
        self._shift_us = shift_us
        self._launches = 0

    def span(self, where: tuple[str, object, object], name: str, ts: float, dur: float, **args: object) -> None:
        """Add a complete event; ``where`` is its category, process and thread."""
        category, process, thread = where
        at = {"pid": process, "tid": thread, "ts": ts + self._shift_us, "dur": dur}
        self.events.append({"ph": "X", "cat": category, "name": name, **at, "args": args})

    def arrow(self, name: str, number: int, start: tuple[int, float], end: tuple[int, float]) -> None:
        """Add a flow; each end is its thread and its time."""
        for phase, (thread, ts) in (("s", start), ("f", end)):
            at = {"pid": 10, "tid": thread, "ts": ts + self._shift_us, "id": number}
            self.events.append({"ph": phase, "cat": name, "name": name, **at, **({"bp": "e"} if phase == "f" else {})})

    def launch(
        self,
        call: str,
        called: tuple[int, float],
        where: tuple[str, int],
        name: str,
        ran: tuple[float, float],
        **args: object,
    ) -> None:
        """Add a call, on its thread and at its time, and what it launched: category, stream, name, start, duration."""
        self._launches += 1
        category, stream = where
        thread, ts = called
        self.span(("cuda_runtime", 10, thread), call, ts, 5.0, correlation=self._launches)
        said = {"correlation": self._launches, "device": 0, "stream": stream, **args}
        self.span((category, 0, stream), name, ran[0], ran[1], **said)
        self.arrow("ac2g", self._launches, (thread, ts), (stream, ran[0]))

    def document(self, rank: int, backend: str) -> Document:
        """Return the trace as torch writes it."""
        named = {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 1.0, "args": {"name": "python"}}
        spanning = {
            "ph": "X",
            "cat": "Trace",
            "name": "PyTorch Profiler (0)",
            "pid": "Spans",
            "tid": "PyTorch Profiler",
        }
        group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 2, "ranks": [0, 1]}
        return {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "A100"}],
            "distributedInfo": {
                "backend": backend,
                "rank": rank,
                "world_size": 2,
                "pg_count": 1,
                "pg_config": [group],
            },
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": 1790857026000000000,
            "traceEvents": [*self.events, named, {**spanning, "ts": 1000000.0, "dur": 4000.0}],
            "traceName": f"rank{rank}.json",
        }


def _collective(name: str, seq: int, elements: tuple[int, int], dtype: str) -> dict[str, object]:
    """Return what torch writes of a collective on its kernel."""
    return {
        "Collective name": name,
        "In msg nelems": elements[0],
        "Out msg nelems": elements[1],
        "Group size": 2,
        "dtype": dtype,
        "Process Group Name": "0",
        "Process Group Description": "default_pg",
        "Process Group Ranks": "[0, 1]",
        "Seq": seq,
        "grid": [24, 1, 1],
        "block": [544, 1, 1],
    }


def _inputs(shapes: Sequence[object], dtypes: Sequence[str], *concrete: str) -> dict[str, object]:
    return {"Input Dims": list(shapes), "Input type": list(dtypes), "Concrete Inputs": list(concrete)}


def make_fsdp_rank(rank: int, *, shift_us: float = 0.0) -> Document:
    """Return two steps of FSDP on a device: unshards of two layers, a reduce-scatter, a copy, an unknown kernel."""
    drawn = _Drawn(shift_us)
    for step, start in ((3, 1000000.0), (4, 1001000.0)):
        drawn.span(("user_annotation", 10, 10), f"ProfilerStep#{step}", start, 1000.0)
        drawn.span(("gpu_user_annotation", 0, 7), f"ProfilerStep#{step}", start + 5, 990.0)
        at = start + 10
        for layer in range(2):
            drawn.span(("user_annotation", 10, 10), f"FSDP::all_gather (layers.{layer})", at, 20.0)
            said = _inputs(
                [[16], [8], [], [], []], ["float", "float", "", "Scalar", "Scalar"], "", "", "", "False", "-1"
            )
            drawn.span(("cpu_op", 10, 10), "c10d::_allgather_base_", at + 1, 10.0, **said)
            told = _collective("_allgather_base", step * 10 + layer, (1048576, 2097152), "BFloat16")
            gather = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
            drawn.launch("cudaLaunchKernelExC", (10, at + 3), ("kernel", 20), gather, (at + 10, 60.0), **told)
            at += 25
            said = _inputs([[64, 64], [64, 64]], ["float", "float"])
            module = f"TOP(M).layers.{layer}(L)"
            said |= {"Sequence number": step * 100 + layer, "Fwd thread id": 0, "Module Hierarchy": module}
            drawn.span(("cpu_op", 10, 10), "aten::mm", at, 15.0, **said)
            shape: dict[str, object] = {"grid": [8, 4, 1], "block": [128, 1, 1]}
            gemm = "ampere_sgemm_128x64_nn"
            drawn.launch("cudaLaunchKernel", (10, at + 2), ("kernel", 7), gemm, (at + 45, 80.0), **shape)
            at += 120
        node = "autograd::engine::evaluate_function: MmBackward0"
        drawn.span(
            ("user_annotation", 10, 11), node, at, 40.0, **{"Sequence number": step * 100 + 1, "Fwd thread id": 1}
        )
        drawn.arrow("fwdbwd", step, (10, start + 180), (11, at))
        drawn.launch(
            "cudaLaunchKernel", (11, at + 2), ("kernel", 7), "ampere_sgemm_128x64_nt", (at + 20, 150.5), **shape
        )
        reduce = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        told = _collective("_reduce_scatter_base", step * 10 + 5, (2097152, 1048576), "BFloat16")
        drawn.launch("cudaLaunchKernelExC", (11, at + 30), ("kernel", 21), reduce, (at + 100, 200.25), **told)
        copy = "Memcpy HtoD (Pinned -> Device)"
        drawn.launch("cudaMemcpyAsync", (10, at + 60), ("gpu_memcpy", 7), copy, (at + 320, 25.0), bytes=4096)
        drawn.span(("cuda_runtime", 10, 10), "cudaDeviceSynchronize", at + 70, 300.0)
        drawn.span(("kernel", 0, 22), "some_unknown_allreduce_thing", at + 350, 10.0, correlation=99999)
    return drawn.document(rank, "nccl")


def make_ddp_rank(rank: int, *, shift_us: float = 0.0) -> Document:
    """Return three steps of DDP on a device: two buckets reduced beside backward, one of them exposed at its end."""
    drawn = _Drawn(shift_us)
    shape: dict[str, object] = {"grid": [16, 1, 1], "block": [256, 1, 1]}
    for step in range(3):
        start = 2000000.0 + 1500.0 * step
        drawn.span(("user_annotation", 10, 10), f"ProfilerStep#{step + 7}", start, 1450.0)
        drawn.span(("user_annotation", 10, 10), "DistributedDataParallel.forward", start + 10, 200.0)
        for layer in range(2):
            said = {"Sequence number": 50 * step + layer, "Fwd thread id": 0}
            drawn.span(("cpu_op", 10, 10), "aten::addmm", start + 20 + 60 * layer, 40.0, **said)
            ran = (start + 60 + 150 * layer, 140.0)
            drawn.launch("cudaLaunchKernel", (10, start + 25 + 60 * layer), ("kernel", 7), "ampere_sgemm", ran, **shape)
        for bucket, layer in enumerate((1, 0)):
            at = start + 400 + 300 * bucket
            node = "autograd::engine::evaluate_function: AddmmBackward0"
            said = {"Sequence number": 50 * step + layer, "Fwd thread id": 1}
            drawn.span(("cpu_op", 10, 12), node, at, 60.0, **said)
            drawn.arrow("fwdbwd", 50 * step + layer, (10, start + 20 + 60 * layer), (12, at))
            drawn.launch("cudaLaunchKernel", (12, at + 5), ("kernel", 7), "ampere_sgemm_nt", (at + 20, 270.0), **shape)
            drawn.span(("cpu_op", 10, 12), "autograd::engine::evaluate_function: AccumulateGrad", at + 62, 60.0)
            told = _collective("allreduce", 2 * step + bucket, (262144, 262144), "Float")
            drawn.span(("cpu_op", 10, 12), "c10d::allreduce_", at + 70, 40.0)
            drawn.span(("cpu_op", 10, 12), "record_param_comms", at + 75, 30.0, **told)
            reduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
            ran = (at + 300, 250.0)
            drawn.launch("cudaLaunchKernelExC", (12, at + 80), ("kernel", 16), reduce, ran, **told)
        drawn.span(("cuda_runtime", 10, 10), "cudaStreamWaitEvent", start + 1100, 3.0)
        drawn.span(("user_annotation", 10, 10), "Optimizer.step#SGD.step", start + 1110, 100.0)
        drawn.launch("cudaLaunchKernel", (10, start + 1120), ("kernel", 7), "multi_tensor_apply", (start + 1260, 90.0))
    return drawn.document(rank, "nccl")


def make_gloo_rank(rank: int, *, shift_us: float = 0.0) -> Document:
    """Return two steps of DDP over gloo as dtbench runs it: its own ranges around what it issues."""
    drawn = _Drawn(shift_us)
    for step in range(2):
        start = 500000.0 + 3000.0 * step
        drawn.span(("user_annotation", 10, 10), f"ProfilerStep#{step}", start, 2900.0)
        for region, begin, length in (("forward", 10, 800), ("backward", 820, 1500), ("optimizer", 2500, 300)):
            drawn.span(("user_annotation", 10, 10), f"dtbench::region {region}", start + begin, float(length))
        said: dict[str, object] = _inputs([[64, 64], [64, 64]], ["float", "float"])
        drawn.span(("cpu_op", 10, 10), "aten::mm", start + 20, 700.0, **said)
        for bucket in range(2):
            at = start + 830 + 700 * bucket
            node = "autograd::engine::evaluate_function: MmBackward0"
            drawn.span(("cpu_op", 10, 11), node, at, 500.0)
            drawn.span(("cpu_op", 10, 11), "aten::mm", at + 10, 450.0, **said)
            label = (
                f"dtbench::collective group=0 seq={2 * step + bucket} op=all_reduce bytes=16384 axis=replicate "
                f"async=1 owner=bucket {bucket}"
            )
            drawn.span(("user_annotation", 10, 11), label, at + 520, 60.0)
            drawn.span(
                ("cpu_op", 10, 11),
                "c10d::allreduce_",
                at + 525,
                50.0,
                **_inputs([[[4096]], [], []], ["TensorList", "", ""]),
            )
            reduced: dict[str, object] = _inputs([[4096]], ["float"])
            drawn.span(("user_annotation", 10, 20 + bucket), "gloo:all_reduce", at + 560, 600.0, **reduced)
        drawn.span(("user_annotation", 10, 10), f"dtbench::wait group=0 seq={2 * step + 1}", start + 2150, 250.0)
        drawn.span(("cpu_op", 10, 10), "aten::add_", start + 2510, 200.0)
    return drawn.document(rank, "gloo")


def iterate_events(document: object) -> Iterator[object]:
    """Yield the events of a document, or of a bare list of them; nothing of what is neither."""
    found = document.get("traceEvents") if isinstance(document, dict) else document
    yield from found if isinstance(found, list) else ()
