"""What the profiler was asked for is in the trace, or a receipt says why not."""

import gc
import gzip
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

from dtbench.base.errors import MissingError
from dtbench.base.vocabulary import DeviceKind
from dtbench.scenario.schema.scenario import Profiler
from dtbench.store.records.rank import Receipt, ReceiptOutcome
from dtbench.worker.loop import capture as capture_module
from dtbench.worker.loop.capture import capture, read_profiler_receipts
from dtbench.worker.recording.recorder import Recorder

ASKED: dict[str, dict[str, bool]] = {
    "record_shapes": {"record_shapes": True},
    "with_stack": {"with_stack": True},
    "profile_memory": {"profile_memory": True},
    "record_python_gc_info": {"with_stack": True, "record_python_gc_info": True},
    "capture_overload_names": {"capture_overload_names": True},
    "enable_cuda_sync_events": {"enable_cuda_sync_events": True},
}
ON_CUDA_ONLY = {"profile_memory", "enable_cuda_sync_events"}


def profiled(folder: Path, settings: Profiler) -> Path:
    trace = folder / "rank0.0.pt.trace.json.gz"
    weight = torch.ones(4, 4, requires_grad=True)
    with capture(DeviceKind.CPU, Recorder(), trace, settings):
        (torch.ones(4, 4) @ weight).sum().backward()
        gc.collect()
    return trace


def receipts(trace: Path, asked: Profiler, device: DeviceKind = DeviceKind.CPU) -> dict[str, Receipt]:
    found = read_profiler_receipts(trace, device, asked)
    return {receipt.knob.removeprefix("measure.profiler."): receipt for receipt in found}


def test_every_option_of_the_schema_has_a_receipt(tmp_path: Path) -> None:
    assert set(receipts(profiled(tmp_path, Profiler()), Profiler())) == set(Profiler.model_fields) == set(ASKED)


def test_the_defaults_agree(tmp_path: Path) -> None:
    found = receipts(profiled(tmp_path, Profiler()), Profiler())
    assert {receipt.outcome for receipt in found.values()} == {ReceiptOutcome.AGREES}


@pytest.mark.parametrize("option", sorted(set(ASKED) - ON_CUDA_ONLY))
def test_an_option_that_was_set_agrees(tmp_path: Path, option: str) -> None:
    asked = Profiler(**ASKED[option])
    assert receipts(profiled(tmp_path, asked), asked)[option].outcome is ReceiptOutcome.AGREES


@pytest.mark.parametrize("option", sorted(set(ASKED) - ON_CUDA_ONLY - {"record_python_gc_info"}))
def test_an_option_that_was_silenced_disagrees(tmp_path: Path, option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Profiler(**ASKED[option])
    with monkeypatch.context() as patch:
        patch.setattr(capture_module, "records_shapes", lambda _device, _settings: False)
        trace = profiled(tmp_path, Profiler())
    assert receipts(trace, asked)[option].outcome is ReceiptOutcome.DISAGREES


@pytest.mark.parametrize("option", sorted(ON_CUDA_ONLY))
def test_an_option_that_only_a_gpu_can_honour_says_so(tmp_path: Path, option: str) -> None:
    asked = Profiler(**ASKED[option])
    trace = profiled(tmp_path, asked)
    receipt = receipts(trace, asked)[option]
    assert (receipt.outcome, bool(receipt.note)) == (ReceiptOutcome.NO_EFFECT, True)
    assert receipts(trace, asked, DeviceKind.CUDA)[option].outcome is ReceiptOutcome.DISAGREES


def test_no_garbage_is_no_disagreement(tmp_path: Path) -> None:
    asked = Profiler(with_stack=True, record_python_gc_info=True)
    receipt = receipts(profiled(tmp_path, Profiler(with_stack=True)), asked)["record_python_gc_info"]
    assert (receipt.outcome, receipt.note) == (
        ReceiptOutcome.NO_EFFECT,
        "Python collected no garbage in the PROFILED steps",
    )


def test_memory_events_are_known_where_torch_records_them(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json.gz"
    with torch.profiler.profile(profile_memory=True, record_shapes=True) as profiler:
        torch.ones(4, 4).sum()
    profiler.export_chrome_trace(str(trace))
    asked = Profiler(profile_memory=True, record_shapes=True)
    assert receipts(trace, asked, DeviceKind.CUDA)["profile_memory"].outcome is ReceiptOutcome.AGREES


def test_shapes_cannot_be_switched_off_on_cpu_and_the_receipt_says_why(tmp_path: Path) -> None:
    asked = Profiler(record_shapes=False)
    receipt = receipts(profiled(tmp_path, asked), asked)["record_shapes"]
    assert (receipt.asked, receipt.got, receipt.outcome) == ("false", "true", ReceiptOutcome.NO_EFFECT)
    assert "gloo" in receipt.note


def test_evidence_is_found_wherever_the_pieces_of_a_trace_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "trace.json.gz"
    for padding in range(40):
        trace.write_bytes(gzip.compress(b" " * padding + b'{"name": "Python GC", "cat": "python_function"}'))
        monkeypatch.setattr(capture_module, "_CHUNK_BYTES", 32)
        asked = Profiler(with_stack=True, record_python_gc_info=True)
        found = receipts(trace, asked)
        assert (found["with_stack"].got, found["record_python_gc_info"].got) == ("true", "true"), padding


def test_an_option_that_this_torch_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ordinary = torch._C._profiler._ExperimentalConfig

    def older(**options: Any) -> Any:
        if "capture_overload_names" in options:
            raise TypeError("incompatible constructor arguments")
        return ordinary(**options)

    monkeypatch.setattr(torch._C._profiler, "_ExperimentalConfig", older)
    with pytest.raises(MissingError, match=r"torch .* has no profiler option for measure.profiler.capture_overload"):
        profiled(tmp_path, Profiler(capture_overload_names=True))


def test_garbage_collections_without_stacks_are_refused() -> None:
    with pytest.raises(ValueError, match="records nothing without with_stack"):
        Profiler(record_python_gc_info=True)
