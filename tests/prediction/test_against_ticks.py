"""Random programs of several ranks, lanes and groups: the simulator says what a machine of single ticks says."""

import random

import pytest

from dtbench.base.vocabulary import Axis, Operation, Purpose
from dtbench.prediction.program import (
    Collective,
    Host,
    Instruction,
    Issue,
    Launch,
    Meeting,
    Program,
    Request,
    Wait,
    Work,
)
from dtbench.prediction.simulate import simulate
from tests.prediction.tick_oracle import run_ticks

REQUEST = Request(Axis.DATA, Operation.ALL_REDUCE, Purpose.GRAD_REDUCE, 8)


def make_programs(seed: int) -> dict[int, Program]:
    """Write programs in which all ranks issue the same collectives in one order, and nobody waits in a circle."""
    dice = random.Random(seed)
    ranks = dice.randint(1, 4)
    meeting = dice.choice(list(Meeting))
    skeleton = [dice.choice(("issue", "launch", "launch", "wait", "host", "host")) for _ in range(dice.randint(4, 24))]
    lanes = [dice.choice(("comm", "other")) for _ in skeleton]
    waited = [dice.random() for _ in skeleton]
    afters = [dice.random() for _ in skeleton]
    roots = [dice.random() < 0.15 for _ in skeleton]
    programs: dict[int, Program] = {}
    for rank in range(ranks):
        written: list[Instruction] = []
        given = 0
        for place, what in enumerate(skeleton):
            after = (int(afters[place] * given),) if given and afters[place] < 0.5 else ()
            match what:
                case "host":
                    written.append(Host(dice.randint(0, 9)))
                case "wait" if given:
                    written.append(Wait(int(waited[place] * given), dice.choice((0, 0, 3))))
                case "launch":
                    busy = dice.randint(0, 9)
                    written.append(Launch(Work("main", busy, busy + dice.randint(0, 5), after)))
                    given += 1
                case "issue":
                    service = dice.randint(0, 12)
                    collective = Collective(
                        REQUEST,
                        "all",
                        tuple(range(ranks)),
                        lanes[place],
                        service,
                        meeting,
                        dice.randint(0, 3),
                        after,
                        held_ns=dice.choice((None, dice.randint(0, service))),
                        waits=not (roots[place] and rank == 0),
                    )
                    written.append(Issue(collective, is_blocking=False))
                    given += 1
        programs[rank] = tuple(written)
    return programs


@pytest.mark.parametrize("block", range(10))
def test_simulator_and_ticks_agree(block: int) -> None:
    for seed in range(block * 40, block * 40 + 40):
        programs = make_programs(seed)
        simulated = {rank: (one.step_ns, one.ends_ns) for rank, one in simulate(programs).items()}
        assert simulated == run_ticks(programs), seed
