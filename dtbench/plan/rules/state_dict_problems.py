"""Stages of ``state_dict:`` that do not go together, or not with the rest of a scenario."""

from collections.abc import Callable, Iterator, Sequence

from dtbench.base.vocabulary import OPTIMIZER_STAGES, DeviceKind, Stage, StatePart
from dtbench.plan.rules.rule import EVERYWHERE, ON_CPU, Case, Rule
from dtbench.scenario.schema.scenario import Ddp, Fsdp1, Scenario
from dtbench.scenario.schema.state_dict import StateDict


def _check_lists(asked: StateDict) -> Iterator[str]:
    for name, values in (("stages", asked.stages), ("parts", asked.parts)):
        if not values:
            yield f"state_dict.{name} is empty; name one at least, or leave state_dict out"
        yield from (f"state_dict.{name} names `{value}` twice; once is enough" for value in _find_repeated(values))


def _check_order(asked: StateDict) -> Iterator[str]:
    if Stage.READ in asked.stages and Stage.SAVE not in asked.stages[: asked.stages.index(Stage.READ)]:
        yield "state_dict.stages: `read` reads what `save` has written; put `save` before it"
    if StatePart.OPTIMIZER not in asked.parts:
        for stage in asked.stages:
            if stage in OPTIMIZER_STAGES:
                yield f"state_dict.stages: `{stage}` is of optimizers; put optimizer into state_dict.parts"


def _check_pre_load(scenario: Scenario, asked: StateDict) -> Iterator[str]:
    parallel = scenario.parallel
    has_it = isinstance(parallel, Fsdp1) and parallel.tensor > 1 and StatePart.MODEL in asked.parts
    if Stage.PRE_LOAD in asked.stages and not has_it:
        yield (
            "state_dict.stages: `pre_load` is what FSDP1 over a tensor axis does with its model's parameters; "
            "leave it out, or use parallel.kind: fsdp1 with tensor: 2 and put model into state_dict.parts"
        )


def _check_broken(asked: StateDict) -> Iterator[str]:
    for one in asked.broken:
        if one.stage not in asked.stages or one.part not in asked.parts:
            yield f"state_dict.broken names `{one.stage}` of the {one.part}, which state_dict does not ask for; add it"
    named = [f"{one.stage} of the {one.part}" for one in asked.broken]
    yield from (f"state_dict.broken names `{value}` twice; once is enough" for value in _find_repeated(named))


def _check_steps(asked: StateDict) -> Iterator[str]:
    if asked.steps and asked.broken:
        yield "state_dict.steps train on after the stages, which a broken one prevents; leave one of the two out"
    if asked.steps == 1:
        yield "state_dict.steps=1 leaves no step after the first one that follows a load; write 2 or more"


def _check_optimizer(scenario: Scenario, asked: StateDict) -> Iterator[str]:
    parallel = scenario.parallel
    if StatePart.OPTIMIZER in asked.parts and isinstance(parallel, Ddp) and parallel.optimizer_in_backward:
        yield (
            "parallel.optimizer_in_backward leaves no optimizer whose state torch could give; "
            "state_dict.parts=[model] works"
        )


def _find_repeated(values: Sequence[str]) -> list[str]:
    return [value for place, value in enumerate(values) if value in values[:place]]


def _check_pinned(asked: StateDict) -> Iterator[str]:
    if Stage.STAGE_PINNED in asked.stages:
        yield "state_dict.stages: `stage_pinned` needs CUDA, which pins host memory; leave it out, or use device: cuda"


def _asked(
    name: str,
    says: str,
    check: Callable[[Scenario, StateDict], Iterator[str]],
    devices: frozenset[DeviceKind] = EVERYWHERE,
) -> Rule:
    """Return the row of a check of scenarios that ask for stages."""

    def test(case: Case) -> Iterator[str]:
        asked = case.scenario.state_dict
        return iter(()) if asked is None else check(case.scenario, asked)

    return Rule(f"state_dict: {name}", says, test, devices)


STATE_DICT_RULES = (
    _asked("lists", "stages and parts are named, each once", lambda _, asked: _check_lists(asked)),
    _asked(
        "order", "what is read was saved before; stages of optimizers have one", lambda _, asked: _check_order(asked)
    ),
    _asked("pre_load", "`pre_load` is what FSDP1 does over a tensor axis", _check_pre_load),
    _asked("broken", "a broken stage is one that is asked for", lambda _, asked: _check_broken(asked)),
    _asked("steps", "steps after the stages can train on", lambda _, asked: _check_steps(asked)),
    _asked("optimizer", "an optimizer inside backward has no state to take out", _check_optimizer),
)
STAGE_DEVICE_RULE = _asked(
    "pinned", "host memory is pinned for a device", lambda _, asked: _check_pinned(asked), ON_CPU
)
