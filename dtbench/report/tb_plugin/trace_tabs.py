"""The tabs of plain traces: the page that ``dtbench analyze`` prints, and the tables of its numbers as those of a run.

What only a run knows (a plan, MEASURED steps, memory) is not known here, and no tab says it.
"""

import math
from dataclasses import replace

from dtbench.base.vocabulary import DeviceKind
from dtbench.report.page.brief.traces import traces_brief
from dtbench.report.page.page import Fact, Facts, Part
from dtbench.report.page.trace_page import traces_page
from dtbench.report.tb_plugin.collective_details import CollectiveDetails, describe_collective
from dtbench.report.tb_plugin.collectives import CollectivesDocument, Query, group_collectives, list_collectives
from dtbench.report.tb_plugin.overlap import CellTables, Choice, OverlapDocument, show_overlap
from dtbench.report.tb_plugin.overview import OverviewDocument
from dtbench.report.words.knobs import describe_traces
from dtbench.report.words.trace_words import has_findings
from dtbench.runs.cell.statistics import summarize
from dtbench.runs.representative import doubt_traces
from dtbench.runs.summary import CellSummary
from dtbench.store.records.run import OwnLoop, RunStatus
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.notes.note import say_notes
from dtbench.traces.rows.collective_table import COLLECTIVES
from dtbench.traces.rows.tables import OVERLAP, PURPOSES

CELL = "traces"
"""How the only cell of plain traces is called."""


def make_traces_overview(traces: TraceSet) -> OverviewDocument:
    """Return the short answer, everything that must be doubted, then the tables of the page."""
    brief, whole = traces_brief(traces), traces_page(traces)
    shown = tuple(block for part in brief.parts for block in part.blocks if block.key != "doubts")
    doubts = Facts(tuple(Fact("note", note.words, note.tone) for note in whole.notes), key="doubts")
    parts = (
        Part("brief", "", shown),
        *([Part("doubts", "What must be doubted", (doubts,))] if doubts.facts else []),
        *whole.parts,
    )
    return OverviewDocument(replace(brief, parts=parts), status="", chosen="")


def make_traces_overlap(traces: TraceSet, choice: Choice) -> OverlapDocument:
    """Return the bars that a person chose, of the steps that the traces have."""
    tables = (table.tabulate(traces.analyses).assign(launch=0) for table in (OVERLAP, PURPOSES, COLLECTIVES))
    return show_overlap(_make_cell(traces), CellTables((0,), *tables), choice)


def list_single(traces: TraceSet, query: Query) -> CollectivesDocument:
    """Return a page of single collectives; raises as ``list_collectives``."""
    return list_collectives(COLLECTIVES.tabulate(traces.analyses), _add_doubt(traces, query))


def group(traces: TraceSet, query: Query) -> CollectivesDocument:
    """Return a page of collectives taken together by owner; raises as ``group_collectives``."""
    return group_collectives(COLLECTIVES.tabulate(traces.analyses), _add_doubt(traces, query))


def describe(traces: TraceSet, row: int) -> CollectiveDetails:
    """Return what is said of one collective; raises as ``describe_collective``."""
    ran = describe_traces(traces) if has_findings(traces) else None
    return describe_collective(COLLECTIVES.tabulate(traces.analyses), row, ran)


def _add_doubt(traces: TraceSet, query: Query) -> Query:
    lost = {one.rank: one.unseen - one.unmatched for one in traces.analyses}
    return replace(query, doubt=next(iter(say_notes(traces.rank_doubts)), ""), lost=lost)


def _make_cell(traces: TraceSet) -> CellSummary:
    """Return the traces as a cell of one launch, of which nobody wrote down more than the traces tell."""
    is_device = any(one.timeline.is_device for one in traces.analyses)
    nothing = summarize([])
    return CellSummary(
        name=CELL,
        status=RunStatus.COMPLETE,
        reason=None,
        scenario=None,
        plan=OwnLoop(
            script="",
            device=DeviceKind.CUDA if is_device else DeviceKind.CPU,
            backend=None,
            mesh=(),
            ranks=len(traces.analyses),
            min_warmup_steps=0,
            max_warmup_steps=0,
            measured_steps=0,
            profiled_steps=max(len(one.steps) for one in traces.analyses),
            tokens_per_step=None,
            notes=(),
        ),
        launches=(0,),
        step_time=nothing,
        launch_medians_ns=(),
        profiler_cost=nothing,
        time_to_first_step_ns=math.nan,
        tokens_per_second=math.nan,
        model_flops_utilization=math.nan,
        memory=None,
        cpu_ns_per_step=math.nan,
        hidden_fraction=math.nan,
        exposed_step_fraction=math.nan,
        purposes=(),
        ranks=(),
        receipts=(),
        warmup=None,
        correctness=None,
        losses=(),
        unread_events=traces.unread_events,
        unknown_names=traces.unknown_names,
        trace_paths=(),
        notes=(),
        rank_doubts=say_notes(traces.rank_doubts),
        unseen_collectives=sum(one.unseen for one in traces.analyses),
        doubts=tuple(doubt_traces(traces.analyses)),
    )
