"""Changes that are planted into torch, a kind each: every one is named, with what it breaks and where."""

import enum
import inspect
import pickle
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.fsdp as torch_fsdp
import torch.distributed.fsdp._runtime_utils as torch_runtime
from torch.distributed.fsdp._flat_param import FlatParamHandle

from dtbench.worker.torch_facts.compare import Difference, compare_facts
from dtbench.worker.torch_facts.describe import describe_configuration, describe_engines, describe_names
from dtbench.worker.torch_facts.facts import Facts, Kind
from dtbench.worker.torch_facts.ranks import find_attributes, read_trace
from dtbench.worker.torch_facts.used import read_uses

USES = read_uses()
Told = Iterable[tuple[Kind, str, str]]


def facts(found: Told, cuda: str | None = None) -> Facts:
    made: dict[Kind, dict[str, str]] = {kind: {} for kind in Kind}
    for kind, name, said in found:
        made[kind][name] = said
    return Facts("2.13.0", cuda, made)


def differ(before: Facts, after: Facts) -> tuple[Difference, ...]:
    return compare_facts(before, after, USES).differences


def look(*names: str) -> Facts:
    return facts(describe_names(names, {"_all_gather_flat_param"}))


FULLY_SHARD = "torch.distributed.fsdp.fully_shard"


def shard_again(change: dict[str, Any] | None = None, leave_out: str = "", add: str = "") -> Any:
    """Return a function with torch's signature but for a default, a parameter that is gone, or one that is new."""
    original = inspect.signature(torch_fsdp.fully_shard)
    parameters = [
        one.replace(default=(change or {}).get(one.name, one.default))
        for one in original.parameters.values()
        if one.name != leave_out
    ]
    if add:
        parameters.append(inspect.Parameter(add, inspect.Parameter.KEYWORD_ONLY, default=None))

    def fully_shard() -> None: ...

    fully_shard.__module__ = torch_fsdp.fully_shard.__module__
    fully_shard.__signature__ = original.replace(parameters=parameters)  # type: ignore[attr-defined]
    return fully_shard


@pytest.mark.parametrize(
    ("planted", "name", "change"),
    [
        ({"change": {"reshard_after_forward": False}}, "reshard_after_forward", "keyword only, default None -> "),
        ({"leave_out": "mp_policy"}, "mp_policy", "gone"),
        ({"add": "param_dtype_override_fn"}, "param_dtype_override_fn", "new: keyword only, default None"),
    ],
)
def test_a_knob(monkeypatch: pytest.MonkeyPatch, planted: dict[str, Any], name: str, change: str) -> None:
    before = look(FULLY_SHARD)
    monkeypatch.setattr(torch_fsdp, "fully_shard", shard_again(**planted))
    (found,) = differ(before, look(FULLY_SHARD))
    assert (found.kind, found.name) == (Kind.PARAMETER, f"{FULLY_SHARD}({name})")
    assert found.change.startswith(change)
    assert any(place.startswith("dtbench.worker.parallelize.fsdp2:") for place in found.places)
    assert found.breaks


def test_a_private_function_that_is_gone_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "torch.distributed.fsdp._runtime_utils._unshard"
    before = look(name)
    monkeypatch.delattr(torch_runtime, "_unshard")
    (found,) = differ(before, look(name))
    assert (found.kind, found.name, found.change) == (Kind.NAME, name, "gone")
    assert found.places[0].startswith("dtbench.worker.parallelize.owners:")
    assert found.breaks == USES.docs["dtbench.worker.parallelize.owners"].rstrip(".")


def test_the_signature_of_a_private_method(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "torch.distributed.fsdp._flat_param.FlatParamHandle._all_gather_flat_param"

    def _all_gather_flat_param(self: Any, padded: Any, group: Any) -> None: ...

    before = look(name)
    _all_gather_flat_param.__module__ = FlatParamHandle.__module__
    monkeypatch.setattr(FlatParamHandle, "_all_gather_flat_param", _all_gather_flat_param)
    told = {one.name.partition("(")[2]: one.change for one in differ(before, look(name))}
    assert told["group)"] == "new: number 2"
    assert told["padded_unsharded_flat_param)"] == "gone"


def test_where_a_module_is_installed_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    before = look("torch.save")
    monkeypatch.setattr(pickle, "__spec__", None)
    monkeypatch.setattr(pickle, "__file__", "/elsewhere/pickle.py")
    assert "elsewhere" in repr(pickle)
    assert differ(before, look("torch.save")) == ()


def test_a_function_that_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "torch.distributed.fsdp._runtime_utils._reduce_grad"
    before = look(name)
    monkeypatch.setattr(torch_runtime._reduce_grad, "__module__", "torch.distributed.fsdp._elsewhere")
    (found,) = differ(before, look(name))
    assert found.change == f"function of {torch_runtime.__name__} -> function of torch.distributed.fsdp._elsewhere"


def test_a_member_of_an_enumeration(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "torch.distributed.fsdp.ShardingStrategy"
    before = look(name)
    kept = {one.name: one.value for one in torch_fsdp.ShardingStrategy if one.name != "HYBRID_SHARD"}
    module = torch_fsdp.ShardingStrategy.__module__
    monkeypatch.setattr(torch_fsdp, "ShardingStrategy", enum.Enum("ShardingStrategy", kept, module=module))
    (found,) = [one for one in differ(before, look(name)) if one.kind is Kind.MEMBER]
    assert (found.name, found.change) == (f"{name}.HYBRID_SHARD", "gone")


def test_a_method_that_is_gone_and_one_that_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "torch.distributed.fsdp.FSDPModule"
    before = look(name)
    monkeypatch.delattr(torch_fsdp.FSDPModule, "set_modules_to_forward_prefetch")
    monkeypatch.setattr(torch_fsdp.FSDPModule, "set_gather_by_mail", lambda self: None, raising=False)
    told = {one.name.removeprefix(f"{name}."): one.change.partition(" ")[0] for one in differ(before, look(name))}
    assert told == {"set_modules_to_forward_prefetch": "gone", "set_gather_by_mail": "new:"}


def event(name: str, **args: object) -> dict[str, object]:
    category = "user_annotation" if "FSDP" in name else "cpu_op"
    return {"ph": "X", "cat": category, "name": name, "ts": 1, "dur": 1, "args": args}


def trace(gather: str = "FSDP::all_gather (0)", dtype: str = "c10::BFloat16", key: str = "Input type") -> Facts:
    told = {"Input Dims": [[272], [544], []], key: [dtype, dtype, "Scalar"]}
    events = [event(gather), event("c10d::_reduce_scatter_base_", **told), event("c10d::_reduce_scatter_base_", **told)]
    return facts(read_trace("FSDP2, param_dtype=bfloat16", {"schemaVersion": 1, "traceEvents": events}))


def test_an_annotation_in_a_trace() -> None:
    gone, new = differ(trace(), trace(gather="FSDP::gather (0)"))
    assert (gone.name, gone.change) == ("user_annotation: FSDP::all_gather (N)", "gone")
    assert (new.name, new.change) == ("user_annotation: FSDP::gather (N)", "new: there")
    assert any(place.startswith("dtbench.traces.") for place in gone.places)


def test_a_dtype_on_the_wire() -> None:
    (found,) = differ(trace(), trace(dtype="float"))
    assert found.kind is Kind.WIRE
    assert found.name == "FSDP2, param_dtype=bfloat16: c10d::_reduce_scatter_base_"
    assert found.change == "1 x BFloat16 [272], BFloat16 [544] -> 1 x float [272], float [544]"
    assert found.places == ("dtbench.plan.traffic", "dtbench.prediction")


def test_a_field_of_a_record() -> None:
    told = {one.name: one.change for one in differ(trace(), trace(key="Input dtype")) if one.kind is Kind.FIELD}
    assert told == {
        "of c10d: Input type": "gone",
        "of c10d: Input dtype": "new: there",
    }


def test_an_attribute_of_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    state = SimpleNamespace(_fsdp_param_groups=[])
    state_type = type("FSDPState", (), {"__module__": "torch.distributed.fsdp._fully_shard._fsdp_state"})
    old, new = state_type(), state_type()
    old.__dict__.update(vars(state))
    asked = ["_fsdp_param_groups"]
    (found,) = differ(facts(find_attributes([old], asked)), facts(find_attributes([new], asked)))
    assert (found.kind, found.name, found.change) == (Kind.ATTRIBUTE, "FSDPState._fsdp_param_groups", "gone")
    assert any(place.startswith("dtbench.worker.user_loop.axes:") for place in found.places)


def test_the_engine_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    before = facts(describe_engines())
    monkeypatch.setitem(dist.Backend.default_device_backend_map, "cpu", "gloo2")
    (found,) = differ(before, facts(describe_engines()))
    assert (found.name, found.change) == ("backend of cpu", "'gloo' -> 'gloo2'")
    assert "dtbench.worker.network" in found.places


def test_a_default_of_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    before = facts(describe_configuration())
    with torch._dynamo.config.patch(optimize_ddp="python_reducer"):
        (changed,) = differ(before, facts(describe_configuration()))
    assert (changed.name, changed.change) == ("torch._dynamo.config.optimize_ddp", "True -> 'python_reducer'")


def test_a_variable_that_is_new_and_one_whose_default_flipped(monkeypatch: pytest.MonkeyPatch) -> None:
    source = inspect.getsource(dist.distributed_c10d)

    def look_with(*lines: str) -> Facts:
        monkeypatch.setattr(inspect, "getsource", lambda _: "\n".join([source, *lines]))
        return facts(describe_configuration())

    before = look_with('engine = os.environ.get("TORCH_DIST_USE_OTHER") == "1"')
    after = look_with('engine = os.environ.get("TORCH_DIST_USE_OTHER") == "0"', 'os.environ["TORCH_DIST_NEW"]')
    assert [(one.name, one.change) for one in differ(before, after)] == [
        (
            "TORCH_DIST_USE_OTHER",
            "os.environ.get('TORCH_DIST_USE_OTHER') == '1' -> os.environ.get('TORCH_DIST_USE_OTHER') == '0'",
        ),
        ("TORCH_DIST_NEW", "new: named"),
    ]


def test_what_hangs_on_the_build_is_left_out_and_counted() -> None:
    name = "torch.distributed.ProcessGroupNCCL"
    on_cpu = facts([(Kind.NAME, name, "absent"), (Kind.NAME, "torch.gone", "class of torch")])
    on_cuda = facts([(Kind.NAME, name, "class of torch"), (Kind.NAME, "torch.gone", "absent")], cuda="13.0")
    report = compare_facts(on_cpu, on_cuda, USES)
    assert [one.name for one in report.differences] == ["torch.gone"]
    assert (report.looked_at, report.other_build) == (2, 1)


def test_what_dtbench_uses_since_or_no_more_is_no_difference() -> None:
    fsdp, used = "torch.distributed.fsdp.FSDPModule", "function of torch"
    activity = "torch.profiler.ProfilerActivity"  # C++'s, whose members are looked at where they are used
    whole = (Kind.NAME, fsdp, "class of torch.distributed.fsdp"), (Kind.NAME, activity, "class of torch._C._profiler")
    dropped = (Kind.NAME, "torch.dropped", used), (Kind.NAME, f"{activity}.CUDA", "ProfilerActivity")
    before = [*whole, *dropped, (Kind.NAME, f"{fsdp}.gone", used)]
    since = [(Kind.NAME, "torch.used_since", used), (Kind.PARAMETER, "torch.used_since(x)", "number 0")]
    after = [*whole, (Kind.NAME, f"{fsdp}.fresh", used), *since]
    report = compare_facts(facts(before), facts(after), USES)
    assert [(one.name, one.change) for one in report.differences] == [
        (f"{fsdp}.gone", "gone"),
        (f"{fsdp}.fresh", f"new: {used}"),
    ]
    assert report.unrecorded == 2


def test_a_member_of_a_class_within_a_class_is_known_only_where_it_was_used() -> None:
    group = "torch.distributed.ProcessGroup"
    c10d = "class of torch._C._distributed_c10d"
    whole = [(Kind.NAME, name, c10d) for name in (group, f"{group}.BackendType")]
    member = (Kind.NAME, f"{group}.BackendType.CUSTOM", "BackendType")
    since = compare_facts(facts(whole), facts([*whole, member]), USES)
    assert (since.differences, since.unrecorded) == ((), 1)
    no_more = compare_facts(facts([*whole, member]), facts(whole), USES)
    assert (no_more.differences, no_more.unrecorded) == ((), 0)
