"""One step of one rank where no other is: what it issues is held against the plan, at the real number of ranks.

The plan's formulas are of a model of any size; a rank's real step is not: blocks are cut to two, and widths as far as
every tensor axis still divides them. What is executed is that smaller scenario, and its own plan is what it must meet.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from math import lcm
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from dtbench.base.errors import LaunchError, PlanError
from dtbench.launch.local import make_environment
from dtbench.launch.orders import make_order, say_code
from dtbench.plan.plan import Plan, plan_for_check
from dtbench.plan.traffic.tensor import count_data_ranks
from dtbench.scenario.load import Cell, ScenarioFile
from dtbench.scenario.schema.model import Custom, Mlp, Model, ModelOptions, Timed, Transformer
from dtbench.scenario.schema.scenario import Fsdp2, Scenario
from dtbench.store.executed import Executed
from dtbench.store.layout import LaunchFolder
from dtbench.store.records.fake_step import FakeStep
from dtbench.store.records.run import CellRecord
from dtbench.store.write import write_record

_UNITS: Final = 2
_KV_HEADS: Final = 2
_HEAD: Final = 8
_WIDTH: Final = 32
_VOCABULARY: Final = 64
_TOKENS: Final = 16
_MODULE: Final = "dtbench.worker.fake_rank"


def cut_scenario(scenario: Scenario) -> tuple[Scenario, Plan, tuple[str, ...]]:
    """Return what is executed in a scenario's place on one core of any machine, its plan, and what is smaller in words.

    Blocks, and then widths, stay where the scenario names or divides them.

    Raises:
        PlanError: it could not run on CPU at any size.
    """
    layers, widths = _cut_layers(scenario), _cut_widths(scenario.model, scenario.parallel.tensor)
    for sizes in ({**layers, **widths}, widths, layers):
        try:
            return _make_smaller(scenario, sizes)
        except (PlanError, ValidationError):
            continue
    return _make_smaller(scenario, {})


def _make_smaller(scenario: Scenario, sizes: dict[str, int | None]) -> tuple[Scenario, Plan, tuple[str, ...]]:
    """Make the smaller scenario with the sizes of its model.

    Raises:
        PlanError: it could not run.
        ValidationError: these sizes do not go with each other.
    """
    asked = scenario.model_dump(mode="json")
    data = _cut_data(scenario)
    times = {"forward_ms": 0, "backward_ms": 0, "slow_rank": None} if isinstance(scenario.model, Timed) else {}
    fields = {
        **asked,
        "device": "cpu",
        "model": {**_spell_sizes(scenario.model, asked["model"]), **sizes, **times, **_capture_only(asked["model"])},
        "data": {**asked["data"], **data},
        "network": {"kind": "real"},
        "correctness": {"enabled": False},
        "state_dict": None,
        "env": {},
        "python": None,
    }
    made = Scenario.model_validate_json(json.dumps(fields))
    before, after = {**dict(scenario.model), **dict(scenario.data)}, {**sizes, **data}
    smaller = tuple(f"{name} {before[name]} -> {value}" for name, value in after.items() if before[name] != value)
    return made, plan_for_check(made), smaller


def _capture_only(asked: dict[str, Any]) -> dict[str, Any]:
    """Return how a model is compiled whose code nobody times: its graphs are captured, none is generated from."""
    compiled = asked.get("compile")
    return {} if compiled is None else {"compile": {**compiled, "backend": "eager"}}


def _spell_sizes(model: Model, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a model, of a preset those of its architecture, whose sizes can be changed."""
    if not isinstance(model, Transformer):
        return asked
    options = {name: asked.get(name) for name in ModelOptions.model_fields}
    sizes = {name: getattr(model, name) for name in Transformer.model_fields if name not in ("kind", *options)}
    return {"kind": "transformer", **sizes, **options}


def _cut_layers(scenario: Scenario) -> dict[str, int | None]:
    """Return how many blocks are left: two units of them."""
    model, parallel = scenario.model, scenario.parallel
    if isinstance(model, Custom):
        return {}
    unit = parallel.blocks_per_unit if isinstance(parallel, Fsdp2) else 1
    return {"layers": min(model.layers, _UNITS * unit)}


def _cut_widths(model: Model, tensor: int) -> dict[str, int | None]:
    """Return smaller widths that a tensor axis divides as it does the model's own."""

    def cut(width: int, least: int) -> int:
        return min(width, tensor * max(1, least // tensor))

    match model:
        case Transformer():
            kv_heads = model.kv_heads or model.heads
            kept = min(kv_heads, max(_KV_HEADS, tensor))
            heads = kept * (model.heads // kv_heads)
            return {
                "dim": min(model.dim, heads * _HEAD),
                "heads": heads,
                "kv_heads": kept,
                "ffn_dim": cut(model.ffn_dim, _WIDTH),
                "vocab_size": cut(model.vocab_size, _VOCABULARY),
            }
        case Mlp() | Timed():
            hidden = None if model.hidden_dim is None else cut(model.hidden_dim, _WIDTH)
            return {"dim": cut(model.dim, _WIDTH), "hidden_dim": hidden}
        case _:
            return {}


def _cut_data(scenario: Scenario) -> dict[str, int]:
    """Return one row for each micro-batch of each rank with data, of few tokens, which a tensor axis divides."""
    asked = scenario.data
    tokens = {"sequence_length": min(asked.sequence_length, lcm(_TOKENS, scenario.parallel.tensor))}
    if asked.iterations is not None:
        return tokens
    ranks = count_data_ranks(scenario.parallel)
    return {**tokens, "global_batch": ranks * scenario.accumulation.micro_batches}


def execute_step(cell: Cell, file: ScenarioFile, *, forked: Sequence[str] = ()) -> Executed:
    """Run a step of rank 0 in a process of its own.

    Args:
        cell: as it would run; it is cut first.
        file: that it is of, beside which a person's own model is looked for.
        forked: words before the command, as ``serve_forks`` gives them; none: torch is imported anew.

    Raises:
        LaunchError: it does not run; in the words of what failed.
        PlanError: the smaller scenario could not run anywhere.
    """
    made, plan, cut = cut_scenario(cell.scenario)
    record = CellRecord(name=cell.name, scenario=made, plan=plan, launches=(0,))
    with tempfile.TemporaryDirectory(prefix="dtbench-") as folder:
        order, output = Path(folder, "order.json"), Path(folder, "step.json")
        asked = say_code(make_order(record, 0, LaunchFolder(Path(folder)), None), file)
        write_record(order, asked)
        done = subprocess.run(
            (*forked, sys.executable, "-P", "-m", _MODULE, "--order", str(order), "--output", str(output)),
            env=make_environment(asked),
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            check=False,
        )
        if done.returncode or not output.exists():
            last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
            raise LaunchError(f"a step of rank 0 of {plan.ranks} did not run for cell `{cell.name}`: {last[0]}")
        step = FakeStep.model_validate_json(output.read_bytes())
    return Executed(made, plan, cut, step)
