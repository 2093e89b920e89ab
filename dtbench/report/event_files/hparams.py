"""What TensorBoard's HParams page needs to compare cells: which settings differ, and which scalars are results.

Only the plugin's protobufs are used: its ``summary`` functions need TensorFlow.
"""

from collections.abc import Iterable
from typing import Final

from google.protobuf.struct_pb2 import ListValue, Value
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import api_pb2, metadata
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo

from dtbench.report.words.sentences import is_trusted
from dtbench.report.words.settings import Settings
from dtbench.runs.summary import CellSummary
from dtbench.runs.wrong_results import find_wrong_results
from dtbench.store.records.run import RunStatus

METRICS: Final = (
    ("summary/step_ms", "step_ms"),
    ("summary/exposed_ms", "exposed_ms"),
    ("summary/hidden_fraction", "hidden_fraction"),
    ("summary/gradient_wait_ms", "gradient_wait_ms"),
    ("summary/unshard_wait_ms", "unshard_wait_ms"),
    ("summary/tokens_per_second", "tokens_per_second"),
    ("summary/peak_host_mib", "peak_host_mib"),
    ("summary/peak_allocated_mib", "peak_allocated_mib"),
)
"""Scalars of a cell that are results, and how the page calls them; the page has them in this order, after settings."""

_STATUS: Final = {
    RunStatus.COMPLETE: api_pb2.STATUS_SUCCESS,
    RunStatus.FAILED: api_pb2.STATUS_FAILURE,
    RunStatus.RUNNING: api_pb2.STATUS_RUNNING,
}
_UNTRUSTED: Final = {**_STATUS, RunStatus.COMPLETE: api_pb2.STATUS_UNKNOWN}


def experiment(settings: Settings, metrics: Iterable[tuple[str, str]]) -> Summary.Value:
    """Return the event that declares settings and results (of ``METRICS``); it stands beside the cells' folders.

    A setting is a number where it is one in every cell, and then the page can draw it as an axis.
    """
    names = list(dict.fromkeys(name for of_cell in settings.values() for name in of_cell))
    infos = []
    for name in names:
        values = sorted({of_cell[name] for of_cell in settings.values()})
        domain = ListValue(values=[_value(text, is_number=_is_number(name, settings)) for text in values])
        kind = api_pb2.DATA_TYPE_FLOAT64 if _is_number(name, settings) else api_pb2.DATA_TYPE_STRING
        infos.append(api_pb2.HParamInfo(name=name, type=kind, domain_discrete=domain))
    results = [
        api_pb2.MetricInfo(name=api_pb2.MetricName(tag=tag), display_name=display_name) for tag, display_name in metrics
    ]
    data = HParamsPluginData(experiment=api_pb2.Experiment(hparam_infos=infos, metric_infos=results))
    return _summary(metadata.EXPERIMENT_TAG, data)


def session(cell: CellSummary, settings: Settings) -> tuple[Summary.Value, Summary.Value]:
    """Return the two events that make a cell's folder a row of the page: its settings, and how it ended."""
    start = SessionStartInfo(group_name=cell.name)
    for name, text in settings[cell.name].items():
        start.hparams[name].CopyFrom(_value(text, is_number=_is_number(name, settings)))
    end = SessionEndInfo(status=_find_status(cell))
    return (
        _summary(metadata.SESSION_START_INFO_TAG, HParamsPluginData(session_start_info=start)),
        _summary(metadata.SESSION_END_INFO_TAG, HParamsPluginData(session_end_info=end)),
    )


def _find_status(cell: CellSummary) -> "api_pb2.Status.ValueType":
    """Return how a cell ended; no success where its results are wrong or nothing may be judged by its numbers."""
    if cell.status is RunStatus.COMPLETE and find_wrong_results(cell) is not None:
        return api_pb2.STATUS_FAILURE
    return _STATUS[cell.status] if is_trusted(cell) else _UNTRUSTED[cell.status]


def _summary(tag: str, data: HParamsPluginData) -> Summary.Value:
    return Summary.Value(tag=tag, metadata=metadata.create_summary_metadata(data), tensor=metadata.NULL_TENSOR)


def _is_number(name: str, settings: Settings) -> bool:
    try:
        return all(isinstance(float(of_cell[name]), float) for of_cell in settings.values())
    except ValueError:
        return False


def _value(text: str, *, is_number: bool) -> Value:
    return Value(number_value=float(text)) if is_number else Value(string_value=text)
