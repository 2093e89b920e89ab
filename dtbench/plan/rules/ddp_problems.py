"""Options of DDP that do not go together, each as a sentence that says what would work."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from dtbench.plan.rules.rule import Rule, make_rule_of
from dtbench.plan.traffic.buffers import list_buffers
from dtbench.plan.traffic.parameters import find_under, known_parameters, list_holders
from dtbench.scenario.schema.ddp import Ddp, DdpMixedPrecision, Noop
from dtbench.scenario.schema.model import Mlp, Transformer
from dtbench.scenario.schema.scenario import Scenario, Sgd


def _check_others(scenario: Scenario) -> Iterator[str]:
    """Name what only DDP has, where there is another strategy."""
    model = scenario.model
    if isinstance(scenario.parallel, Ddp):
        return
    if scenario.data.iterations is not None:
        yield "data.iterations counts the iterations of DDP's ranks; with another strategy leave it out"
    if isinstance(model, Mlp) and model.unused_layers:
        yield "model.unused_layers needs parallel.kind=ddp, which can be told to look for unused parameters"
    if isinstance(model, Transformer) and model.sparse_embedding:
        yield "model.sparse_embedding needs parallel.kind=ddp: sharded parameters have dense gradients"


def _check_buckets(parallel: Ddp) -> Iterator[str]:
    if parallel.bucket_cap_mb is not None and parallel.bucket_cap_mb_list is not None:
        yield "parallel.bucket_cap_mb and parallel.bucket_cap_mb_list exclude each other; set one of them"
    if parallel.bucket_cap_mb_list == ():
        yield "parallel.bucket_cap_mb_list is empty; name at least one capacity, or leave it out"


def _check_unused(scenario: Scenario, parallel: Ddp) -> Iterator[str]:
    if parallel.skip_all_reduce_unused_params and not parallel.find_unused_parameters:
        yield "parallel.skip_all_reduce_unused_params needs parallel.find_unused_parameters=true"
    model = scenario.model
    if not isinstance(model, Mlp) or not model.unused_layers:
        return
    if not (parallel.find_unused_parameters or parallel.static_graph or parallel.python_reducer) and parallel.wrap:
        yield (
            "model.unused_layers: DDP waits for gradients that never come; parallel.find_unused_parameters=true or "
            "parallel.static_graph=true works"
        )
    if parallel.tensor > 1:
        yield "model.unused_layers is not there over a tensor axis; parallel.tensor=1 works"


def _check_buffers(parallel: Ddp) -> Iterator[str]:
    if parallel.buffer_comm_hook is not None and not parallel.broadcast_buffers:
        yield "parallel.buffer_comm_hook is not called with parallel.broadcast_buffers=false; leave one of them out"


def _check_hook(scenario: Scenario, parallel: Ddp) -> Iterator[str]:
    if isinstance(parallel.comm_hook, Noop) and scenario.correctness.enabled:
        yield (
            "parallel.comm_hook.kind=noop reduces nothing, so that ranks train apart and no single process trains "
            "like them; correctness.enabled=false says that you know"
        )


def _check_wrapper(scenario: Scenario, parallel: Ddp) -> Iterator[str]:
    """Without the wrapper none of its knobs means anything."""
    if parallel.wrap:
        return
    if parallel.replicas > 1 or parallel.tensor > 1:
        yield "parallel.wrap=false leaves gradients of several ranks apart; it needs one: parallel.replicas=1, tensor=1"
    plain = Ddp(kind="ddp", replicas=parallel.replicas, tensor=parallel.tensor, wrap=False)
    for name in Ddp.model_fields:
        if getattr(parallel, name) != getattr(plain, name):
            yield f"parallel.{name} is a knob of the wrapper; with parallel.wrap=false leave it out"
    if scenario.accumulation.micro_batches > 1:
        yield "parallel.wrap=false reduces nothing to be held back; accumulation.micro_batches=1 works"


_NOT_IN_PYTHON = (
    *("bucket_cap_mb", "bucket_cap_mb_list", "gradient_as_bucket_view", "static_graph", "find_unused_parameters"),
    *("batched_grad_copy", "comm_hook", "delay_all_reduce", "optimizer_in_backward", "join", "buffer_comm_hook"),
    *("lazy_bucket_allocation", "manual_backward_finalization"),
)


def _check_python_reducer(scenario: Scenario, parallel: Ddp) -> Iterator[str]:
    if parallel.compiled_autograd and scenario.model.compile is None:
        yield "parallel.compiled_autograd compiles backward with the backend of model.compile, which is left out"
    if parallel.compiled_autograd and not parallel.python_reducer:
        yield "parallel.compiled_autograd needs parallel.python_reducer=true: DDP's own reducer cannot be compiled"
    if not parallel.python_reducer:
        return
    for name in _NOT_IN_PYTHON:
        if getattr(parallel, name) != Ddp.model_fields[name].default:
            yield f"parallel.python_reducer has no buckets, and parallel.{name} is about these; leave one of them out"
    if parallel.tensor > 1 or scenario.accumulation.micro_batches > 1:
        yield "parallel.python_reducer is not there with a tensor axis or micro-batches; leave one of them out"


_NOT_WITH_ITERATIONS = ("delay_all_reduce", "ignore", "optimizer_in_backward", "buffer_comm_hook", "lifecycle")


def _check_iterations(scenario: Scenario, parallel: Ddp) -> Iterator[str]:
    iterations = scenario.data.iterations
    if iterations is None:
        if parallel.join is not None:
            yield "parallel.join needs data.iterations, one number for each rank, such as [2, 3]"
        return
    if len(iterations) != parallel.replicas:
        yield (
            f"data.iterations has {len(iterations)} numbers for parallel.replicas={parallel.replicas}; "
            "it takes one for each"
        )
    if len(set(iterations)) > 1 and parallel.join is None:
        yield "data.iterations that differ make plain DDP hang; parallel.join={} answers for the ranks that are through"
    yield from _check_iterated(scenario, parallel, max(iterations))


def _check_iterated(scenario: Scenario, parallel: Ddp, most: int) -> Iterator[str]:
    """Name what does not go together with several iterations in a step."""
    rows = scenario.data.global_batch // parallel.replicas
    if rows % most:
        yield f"data.iterations: {rows} rows of a rank cannot be cut into {most} equal parts"
    if parallel.tensor > 1 or scenario.accumulation.micro_batches > 1:
        yield "data.iterations is not there with a tensor axis or micro-batches; leave one of them out"
    for name in _NOT_WITH_ITERATIONS:
        if getattr(parallel, name):
            yield f"data.iterations and parallel.{name} do not go together; leave one of them out"
    if scenario.gradient_clip_norm is not None:
        yield "data.iterations: ranks would clip in unequally many iterations; leave gradient_clip_norm out"
    if set(scenario.measure.exposure) != {"trace"}:
        yield "data.iterations: without communication ranks could not join; measure.exposure=[trace] works"
    yield from _check_states(scenario, parallel)


def _check_finalization(scenario: Scenario, parallel: Ddp) -> Iterator[str]:
    """Name what ends backward otherwise than once a step, by its caller."""
    if not parallel.manual_backward_finalization:
        return
    if scenario.accumulation.sync != "last":
        yield "parallel.manual_backward_finalization ends one backward of a step; accumulation.sync=last works"
    if scenario.data.iterations is not None or parallel.lifecycle:
        yield (
            "parallel.manual_backward_finalization is not there with data.iterations or parallel.lifecycle, whose "
            "backwards end by themselves; leave one of them out"
        )


def _check_states(scenario: Scenario, parallel: Ddp) -> Iterator[str]:
    """``join`` broadcasts the last rank's weights, not what its optimizer knows."""
    has_state = not isinstance(scenario.optimizer, Sgd) or scenario.optimizer.momentum > 0
    is_uneven = len(set(scenario.data.iterations or ())) > 1
    if parallel.join is not None and is_uneven and has_state and scenario.correctness.enabled:
        yield (
            "parallel.join leaves the optimizer's state of ranks that have joined behind, so that no single process "
            "trains like them; optimizer.kind=sgd has none, or correctness.enabled=false says that you know"
        )


def _check_lifecycle(scenario: Scenario, parallel: Ddp) -> Iterator[str]:
    if not parallel.lifecycle:
        return
    special = ("comm_hook", "delay_all_reduce", "ignore", "optimizer_in_backward", "python_reducer", "static_graph")
    for name in special:
        if getattr(parallel, name):
            yield f"parallel.lifecycle is done to plain DDP; leave parallel.{name} out"
    if parallel.tensor > 1 or parallel.mixed_precision != DdpMixedPrecision():
        yield "parallel.lifecycle is done to plain DDP; leave parallel.tensor and parallel.mixed_precision out"
    if scenario.model.compile is not None or scenario.accumulation.micro_batches > 1:
        yield "parallel.lifecycle is done to plain DDP; leave model.compile and accumulation out"
    model = scenario.model
    is_sparse = isinstance(model, Transformer) and model.sparse_embedding
    if "sparse_metadata" in parallel.lifecycle and not is_sparse:
        yield "parallel.lifecycle=sparse_metadata needs model.sparse_embedding=true"


def _check_sparse(scenario: Scenario, parallel: Ddp) -> Iterator[str]:
    model, optimizer = scenario.model, scenario.optimizer
    if not isinstance(model, Transformer) or not model.sparse_embedding:
        return
    if not isinstance(optimizer, Sgd) or optimizer.momentum or optimizer.weight_decay or optimizer.fused:
        yield "model.sparse_embedding needs optimizer.kind=sgd without momentum, weight_decay and fused"
    if scenario.gradient_clip_norm is not None:
        yield "model.sparse_embedding: torch clips no sparse gradients; leave gradient_clip_norm out"
    if model.tied_head or parallel.tensor > 1 or scenario.accumulation.micro_batches > 1:
        yield "model.sparse_embedding is not there with a tied head, a tensor axis or micro-batches; leave one out"
    for name in ("comm_hook", "delay_all_reduce", "ignore", "python_reducer", "batched_grad_copy"):
        if getattr(parallel, name):
            yield f"model.sparse_embedding has a gradient that parallel.{name} cannot take; leave one of them out"


def _check_optimizer(scenario: Scenario, parallel: Ddp) -> Iterator[str]:
    if parallel.optimizer_in_backward and scenario.gradient_clip_norm is not None:
        yield "parallel.optimizer_in_backward updates before all gradients are known; leave gradient_clip_norm out"
    if parallel.optimizer_in_backward and parallel.comm_hook is not None:
        yield "parallel.optimizer_in_backward is a communication hook itself; leave parallel.comm_hook out"


def _check_ignored(parallel: Ddp) -> Iterator[str]:
    if parallel.ignore and parallel.tensor > 1:
        yield "parallel.ignore is not there over a tensor axis; parallel.tensor=1 works"


def _check_names(scenario: Scenario, parallel: Ddp) -> Iterator[str]:
    names = [parameter.name for parameter in known_parameters(scenario.model) or ()]
    if not names:
        return  # a person's own model: only building it shows its names
    buffers = [one.name for one in list_buffers(scenario.model)]
    yield from check_named("delay_all_reduce", parallel.delay_all_reduce, names)
    yield from check_named("ignore", parallel.ignore, [*names, *buffers])
    delayed, ignored = find_under(names, parallel.delay_all_reduce), find_under(names, parallel.ignore)
    if names[0] in delayed:
        yield f"parallel.delay_all_reduce must leave out `{names[0]}`, whose gradient starts the delayed all-reduce"
    if ignored.issuperset(names):
        yield "parallel.ignore leaves DDP nothing to reduce; take some names off, or the wrapper: parallel.wrap=false"
    if ignored & delayed:
        yield "parallel.ignore and parallel.delay_all_reduce name the same parameter; name it once"


def check_named(knob: str, modules: Iterable[str], names: Sequence[str]) -> Iterator[str]:
    """Name what a knob of a strategy names and the model does not have."""
    known = {holder for name in names for holder in list_holders(name)}
    for module in modules:
        if module not in known:
            yield f"parallel.{knob}: `{module}` names no parameter or module; `{names[1]}` is a parameter"


_ddp = partial(make_rule_of, Ddp)


DDP_RULES = (
    Rule("ddp: of others", "what only DDP has needs DDP", lambda case: _check_others(case.scenario)),
    _ddp("buckets", "buckets are sized in one way", lambda _, parallel: _check_buckets(parallel)),
    _ddp("unused parameters", "DDP is told of parameters that have no gradients", _check_unused),
    _ddp(
        "buffers", "a hook of buffers needs buffers that are synchronized", lambda _, parallel: _check_buffers(parallel)
    ),
    _ddp("noop", "ranks that reduce nothing are not held against one process", _check_hook),
    _ddp("wrap", "without the wrapper there is one rank, and none of the wrapper's knobs", _check_wrapper),
    _ddp("python reducer", "the python reducer has no buckets", _check_python_reducer),
    _ddp("iterations", "ranks with unequally many iterations join", _check_iterations),
    _ddp("lifecycle", "what is done to a live model is done to plain DDP", _check_lifecycle),
    _ddp("sparse", "sparse gradients are taken by plain SGD, and by few knobs", _check_sparse),
    _ddp("finalization", "backward that is ended by hand ends once a step", _check_finalization),
    _ddp(
        "optimizer in backward", "an optimizer in backward is the only hook, and nothing is clipped", _check_optimizer
    ),
    _ddp("ignore", "nothing is ignored over a tensor axis", lambda _, parallel: _check_ignored(parallel)),
    _ddp("names", "knobs name parameters that the model has", _check_names),
)
