"""DDP's program: a bucket is all-reduced when its last gradient is ready, in order, and all are waited for at the end.

Moments of backward are places of blocks, which fall meanwhile::

    reach_blocks   | block 2          | block 1          | block 0          | the end
    3              | 3 ... 2.4 ...  2 | 2 ...          1 | 1 ...          0 | -1          2.4: after 0.6 of block 2

Over a tensor axis every gradient passes through a node that was made before forward, so that all become ready at the
end of backward (``read_ddp_overlap`` in ``dtbench/worker/parallelize/ddp.py``). The first step is not bucketed yet
(``BucketCapacityConfig.compute_bucket_size_limits``, ``torch/nn/parallel/distributed.py``, 2.13).
"""

from collections.abc import Sequence

from dtbench.base.vocabulary import Axis, Operation, Purpose
from dtbench.plan.traffic.ddp import fill_buckets, fill_first_buckets, hooked_bytes
from dtbench.plan.traffic.parameters import Parameter
from dtbench.prediction.costs import Costs
from dtbench.prediction.program import ProgramWriter, Request
from dtbench.prediction.step import Hooks
from dtbench.scenario.schema.scenario import Ddp, Scenario

_END = -1
"""Place of gradients that are ready when all of backward is computed."""


def make_ddp(
    scenario: Scenario, parallel: Ddp, parameters: tuple[Parameter, ...], costs: Costs, writer: ProgramWriter
) -> Hooks:
    """Return what DDP issues in a step after its buckets are rebuilt."""
    buckets = fill_buckets(scenario, parallel, parameters)
    return _Reducer(scenario, parallel, _Readiness(parameters, costs, is_cut=parallel.tensor > 1), buckets, writer)


def make_first_ddp(
    scenario: Scenario, parallel: Ddp, parameters: tuple[Parameter, ...], costs: Costs, writer: ProgramWriter
) -> Hooks:
    """Return what DDP issues in the first step, before its buckets are rebuilt; a static graph waits for its end."""
    buckets = fill_first_buckets(scenario, parallel, parameters)
    readiness = _Readiness(parameters, costs, is_cut=parallel.tensor > 1 or parallel.static_graph)
    return _Reducer(scenario, parallel, readiness, buckets, writer)


class _Readiness:
    """At which place of backward each gradient is ready: in or after its block; before the last for what follows it."""

    def __init__(self, parameters: tuple[Parameter, ...], costs: Costs, *, is_cut: bool) -> None:
        units = list(dict.fromkeys(one.unit for one in parameters if one.unit))
        first = next(place for place, one in enumerate(parameters) if one.unit)
        self._places: dict[str, float] = {}
        for place, one in enumerate(parameters):
            if is_cut or (not one.unit and place < first):
                self._places[one.name] = _END
            elif not one.unit:
                self._places[one.name] = len(units)
        for place, unit in enumerate(units):
            of = [one for one in parameters if one.unit == unit]
            shares = costs.units[place].ready or (1.0,) * len(of)
            for one, share in zip(of, shares, strict=True):
                self._places.setdefault(one.name, _place_within(place, share))

    def place_of(self, bucket: Sequence[Parameter]) -> float:
        """Return the place at which the last gradient of a bucket is ready; places fall during backward."""
        return min(self._places[one.name] for one in bucket)


def _place_within(place: int, share: float) -> float:
    return place + 1 - share


class _Reducer:
    """Issues buckets in order, each when it is ready and all before it are issued."""

    def __init__(
        self,
        scenario: Scenario,
        parallel: Ddp,
        readiness: _Readiness,
        buckets: Sequence[list[Parameter]],
        writer: ProgramWriter,
    ) -> None:
        self._buckets = [
            (readiness.place_of(bucket), _requests(place, bucket, scenario, parallel))
            for place, bucket in enumerate(buckets)
        ]
        self._blocks = len({one.unit for bucket in buckets for one in bucket if one.unit})
        self._writer = writer
        self._reduces_always = scenario.accumulation.sync != "last"
        self._waiting = self._buckets[:0]
        self._issued: list[int | None] = []

    def enter_forward(self) -> None:
        pass

    def before_forward(self, place: int) -> None:
        pass

    def after_forward(self, place: int) -> None:
        pass

    def leave_forward(self) -> None:
        pass

    def enter_backward(self, *, is_last: bool) -> None:
        self._waiting = list(self._buckets) if is_last or self._reduces_always else []
        self._issued = []

    def reach_blocks(self) -> None:
        self._issue_ready(self._blocks)

    def before_backward(self, place: int) -> None:
        pass

    def within_backward(self, place: int, share: float) -> None:
        self._issue_ready(_place_within(place, share))

    def after_backward(self, place: int) -> None:
        self._issue_ready(place)

    def leave_backward(self) -> None:
        self._issue_ready(_END)
        for number in self._issued:
            self._writer.wait(number)

    def _issue_ready(self, place: float) -> None:
        while self._waiting and self._waiting[0][0] >= place:
            _, requests = self._waiting.pop(0)
            self._issued += [self._writer.issue(request) for request in requests]


def _requests(place: int, bucket: list[Parameter], scenario: Scenario, parallel: Ddp) -> tuple[Request, ...]:
    return tuple(
        Request(Axis.REPLICATE, Operation.ALL_REDUCE, Purpose.GRAD_REDUCE, size_bytes, f"bucket {place}")
        for size_bytes in hooked_bytes(bucket, scenario, parallel)
    )
