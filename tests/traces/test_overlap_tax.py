"""The overlap tax: the same kernels under communication and alone."""

import math
import statistics
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtbench.traces.account.overlap_tax import LEAST_SEEN, UNDER_FRACTION, OverlapTax, measure_overlap_tax
from dtbench.traces.rank.analysis import analyze_trace
from dtbench.traces.rows.tables import OVERLAP_TAX
from dtbench.traces.time.intervals import Bools, Intervals, Ints, unite
from dtbench.traces.trace import Sparse, Trace, Unread, no_values

Kernel = tuple[str, str | None, int, int]  # name, grid, start, end


def build(kernels: list[Kernel], comm: list[tuple[int, int]]) -> tuple[Trace, Bools, Intervals]:
    names, grids = ("a", "b", "nccl"), ("[1,1,1] [32,1,1]", "[2,1,1] [32,1,1]")
    rows = [*kernels, *(("nccl", None, start, end) for start, end in comm)]
    shaped = [index for index, (_, grid, _, _) in enumerate(rows) if grid is not None]
    trace = Trace(
        path="drawn",
        rank=2,
        world_size=None,
        names=names,
        categories=("kernel",),
        lanes=(("0", "7"), ("0", "20")),
        name=np.array([names.index(name) for name, _, _, _ in rows], dtype=np.int32),
        category=np.zeros(len(rows), dtype=np.int16),
        lane=np.array([int(name == "nccl") for name, _, _, _ in rows], dtype=np.int32),
        start_ns=np.array([start for _, _, start, _ in rows], dtype=np.int64),
        end_ns=np.array([end for _, _, _, end in rows], dtype=np.int64),
        correlation=no_values(),
        details={},
        group_descriptions={},
        unread=Unread(),
        grid=Sparse(
            np.array(shaped, dtype=np.int64),
            np.array([grids.index(grid) for _, grid, _, _ in rows if grid is not None], dtype=np.int64),
        ),
        grids=grids,
    )
    computing = np.array([name != "nccl" for name, _, _, _ in rows], dtype=np.bool_)
    return trace, computing, unite([start for start, _ in comm], [end for _, end in comm])


def measure(kernels: list[Kernel], comm: list[tuple[int, int]]) -> OverlapTax:
    trace, computing, comm_time = build(kernels, comm)
    return measure_overlap_tax(trace, computing, comm_time, regions_of(trace))


def regions_of(trace: Trace) -> Ints:
    """Number two regions: 2 from 3000 on, 1 before."""
    return 1 + (trace.start_ns >= 3000).astype(np.int64)


SMALL, LARGE = "[1,1,1] [32,1,1]", "[2,1,1] [32,1,1]"
# Communication runs in [1000, 2000). Alone: 10, 10, 13, 11; under it: 20, 22, 30.
SEEN_BOTH_WAYS: list[Kernel] = [
    *(("a", SMALL, 100 * place, 100 * place + length) for place, length in enumerate((10, 10, 13, 11))),
    *(("a", SMALL, 1000 + 100 * place, 1000 + 100 * place + length) for place, length in enumerate((20, 22, 30))),
]
COMM = [(1000, 2000)]


def test_medians_of_a_kernel_under_communication_and_alone_are_compared() -> None:
    tax = measure(SEEN_BOTH_WAYS, COMM)
    (kernel,) = tax.kernels
    assert (kernel.name, kernel.grid) == ("a", SMALL)
    assert (kernel.alone_count, kernel.under_count) == (4, 3)
    assert (kernel.alone_ns, kernel.under_ns) == (10.5, 22.0)
    assert tax.ratio == kernel.ratio == 22 / 10.5
    assert tax.tax_ns == 3 * 11.5
    assert (tax.alone_count, tax.under_count, tax.partial_count, tax.compared_count) == (4, 3, 0, 3)


def test_the_ratio_is_weighted_by_runs_under_communication_and_says_how_many_were_slower() -> None:
    faster: list[Kernel] = [
        *(("b", LARGE, 500 + 10 * place, 508 + 10 * place) for place in range(3)),
        *(("b", LARGE, 1500 + 10 * place, 1504 + 10 * place) for place in range(6)),
    ]
    tax = measure([*SEEN_BOTH_WAYS, *faster], COMM)
    assert [(kernel.name, kernel.ratio) for kernel in tax.kernels] == [("a", 22 / 10.5), ("b", 0.5)]
    assert tax.ratio == (3 * 22 + 6 * 4) / (3 * 10.5 + 6 * 8)
    assert tax.slower_fraction == 3 / 9


def test_another_launch_shape_or_name_is_another_kernel() -> None:
    others: list[Kernel] = [
        *(("a", LARGE, 500 + 10 * place, 505 + 10 * place) for place in range(4)),
        *(("b", SMALL, 1500 + 10 * place, 1505 + 10 * place) for place in range(4)),
    ]
    tax = measure([*SEEN_BOTH_WAYS, *others], COMM)
    assert [kernel.grid for kernel in tax.kernels] == [SMALL]
    assert (tax.alone_count, tax.under_count) == (8, 7)


def test_kernels_that_communication_covers_in_part_are_counted_and_left_out() -> None:
    kernel: list[Kernel] = [("a", SMALL, 0, 1000)]
    enough_ns = round(1000 * UNDER_FRACTION)
    short, enough = measure(kernel, [(0, enough_ns - 1)]), measure(kernel, [(1000 - enough_ns, 1000)])
    assert (short.under_count, short.partial_count, short.alone_count) == (0, 1, 0)
    assert (enough.under_count, enough.partial_count, enough.alone_count) == (1, 0, 0)


def test_without_a_kernel_seen_both_ways_the_tax_is_not_a_number() -> None:
    for tax in (measure([], []), measure(SEEN_BOTH_WAYS, []), measure(SEEN_BOTH_WAYS[: 4 + LEAST_SEEN - 1], COMM)):
        assert tax.kernels == ()
        assert math.isnan(tax.ratio)
        assert math.isnan(tax.tax_ns)
        assert math.isnan(tax.slower_fraction)


def test_kernels_whose_launch_shape_is_not_said_are_counted_and_left_out() -> None:
    shapeless: list[Kernel] = [(name, None, start, end) for name, _, start, end in SEEN_BOTH_WAYS]
    tax = measure(shapeless, COMM)
    assert (tax.kernels, tax.shapeless_count, tax.alone_count) == ((), len(SEEN_BOTH_WAYS), 0)


def test_kernels_of_no_length_are_left_out() -> None:
    assert measure([("a", SMALL, 5, 5)], []).alone_count == 0


def test_a_trace_says_its_tax_and_tabulates_it() -> None:
    trace, _, _ = build(SEEN_BOTH_WAYS, COMM)
    one = analyze_trace(trace)
    assert OVERLAP_TAX.tabulate([one]).empty  # it has no steps, so no region of them is known
    one = replace(one, accounts=replace(one.accounts, overlap_tax=measure(SEEN_BOTH_WAYS, COMM)))
    (row,) = OVERLAP_TAX.tabulate([one]).to_dict("records")
    assert (row["rank"], row["name"], row["grid"], row["ratio"]) == (2, "a", SMALL, 22 / 10.5)
    assert OVERLAP_TAX.tabulate([analyze_trace(replace(trace, grid=no_values()))]).empty


kernels = st.lists(
    st.tuples(
        st.sampled_from(("a", "b")), st.sampled_from((SMALL, LARGE, None)), st.integers(0, 60), st.integers(0, 12)
    ).map(lambda one: (one[0], one[1], one[2], one[2] + one[3])),
    max_size=40,
)
spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda one: (one[0], sum(one))), max_size=3)


@given(kernels=kernels, comm=spans)
def test_the_tax_agrees_with_looking_at_every_kernel(kernels: list[Kernel], comm: list[tuple[int, int]]) -> None:
    running = {tick for start, end in comm for tick in range(start, end)}
    seen: dict[tuple[str, str], tuple[list[int], list[int]]] = {}
    for name, grid, start, end in kernels:
        shared = len(running & set(range(start, end)))
        if grid is None or start == end or 0 < shared < UNDER_FRACTION * (end - start):
            continue
        seen.setdefault((name, grid), ([], []))[bool(shared)].append(end - start)
    expected = {
        key: (statistics.median(alone), statistics.median(under), len(alone), len(under))
        for key, (alone, under) in seen.items()
        if min(len(alone), len(under)) >= LEAST_SEEN
    }
    tax = measure(kernels, comm)
    assert {
        (one.name, one.grid): (one.alone_ns, one.under_ns, one.alone_count, one.under_count) for one in tax.kernels
    } == expected
    assert tax.alone_count == sum(len(alone) for alone, _ in seen.values())
    assert tax.under_count == sum(len(under) for _, under in seen.values())


def test_a_kernel_of_forward_is_not_compared_with_one_of_backward() -> None:
    """Of one name and shape, and yet the product of other matrices: alone before 3000, taxed after it."""
    forward: list[Kernel] = [("a", SMALL, 100 * place, 100 * place + 10) for place in range(4)]
    backward: list[Kernel] = [("a", SMALL, 3000 + 100 * place, 3000 + 100 * place + 40) for place in range(4)]
    assert measure([*forward, *backward], [(3000, 3400)]).kernels == ()


def test_what_ran_in_no_known_region_is_left_out_and_counted() -> None:
    """It may be forward alone and backward under communication: as unlike as two shapes."""
    trace, computing, comm = build(SEEN_BOTH_WAYS, COMM)
    nowhere = measure_overlap_tax(trace, computing, comm, np.zeros(len(trace), dtype=np.int64))
    assert (nowhere.kernels, nowhere.alone_count, nowhere.under_count, nowhere.regionless_count) == ((), 0, 0, 3)
    assert math.isnan(nowhere.ratio)
    assert math.isnan(nowhere.tax_ns)
    assert measure(SEEN_BOTH_WAYS, COMM).regionless_count == 0


def test_a_kernel_of_two_regions_costs_what_it_costs_in_each() -> None:
    def run(start_ns: int, *lengths: int) -> list[Kernel]:
        return [("a", SMALL, start_ns + 100 * place, start_ns + 100 * place + ns) for place, ns in enumerate(lengths)]

    both = [*run(0, 10, 10, 10), *run(1000, 20, 20, 20), *run(3000, 40, 40, 40, 40), *run(4000, 50, 50, 50, 50)]
    tax = measure(both, [(1000, 2000), (4000, 5000)])
    (kernel,) = tax.kernels
    assert (kernel.alone_count, kernel.under_count) == (7, 7)
    assert tax.tax_ns == pytest.approx(3 * 10 + 4 * 10)
    assert kernel.alone_ns == (3 * 10 + 4 * 40) / 7


def test_a_kernel_whose_runs_alone_are_unlike_each_other_is_left_out_and_counted() -> None:
    lengths = (10_000, 10_000, 16_000)
    alone: list[Kernel] = [("a", SMALL, -100_000 * place, -100_000 * place + ns) for place, ns in enumerate(lengths, 1)]
    under: list[Kernel] = [("a", SMALL, 1000 + place, 1000 + place + 20_000) for place in range(3)]
    tax = measure([*alone, *under], [(0, 100_000)])
    assert (tax.kernels, tax.unlike_count, tax.under_count) == ((), 3, 3)
    alike = [(name, grid, start, min(end, start + 15_000)) for name, grid, start, end in alone]
    assert measure([*alike, *under], [(0, 100_000)]).unlike_count == 0
