"""Steps with and without communication, for the estimates of exposed time: parts of a rank's record."""

from dtbench.base.record import Amount, FloatOrNan, Record
from dtbench.base.vocabulary import Arm, Purpose
from dtbench.store.records.traffic import Traffic


class ArmBlock(Record):
    """Steps of one arm that this rank ran one after another, without profiler, learning rate 0.

    Attributes:
        step_ns: duration of each step, as MEASURED steps are timed.
        wait_ns: by purpose, how long a consumer stood still in each of these steps; only of arm ``full``.
        stolen_fraction: the share of the machine's cores that other virtual machines had in each; empty: nobody looked.
        taken_fraction: of the cores that ranks can use at once, had by other processes in each; empty: nobody looked.
    """

    arm: Arm
    step_ns: tuple[Amount, ...]
    wait_ns: dict[Purpose, tuple[Amount, ...]] = {}
    stolen_fraction: tuple[FloatOrNan, ...] = ()
    taken_fraction: tuple[FloatOrNan, ...] = ()


class ArmCount(Record):
    """What one step of an arm did, counted in a step of its own: the arms must differ in nothing but communication.

    Attributes:
        operators: that torch dispatched on this rank.
        traffic: collectives as the step issued them.
    """

    arm: Arm
    operators: Amount
    traffic: tuple[Traffic, ...]


class ArmSteps(Record):
    """What the steps after PROFILED found out about exposed communication.

    Attributes:
        blocks: in the order in which they ran; arms take turns (ABBA).
        counts: one for each arm.
        logged_ns: DDP's own logger, communication less what overlapped compute, one value for each step of its own that
            it sampled; empty for other strategies.
    """

    blocks: tuple[ArmBlock, ...]
    counts: tuple[ArmCount, ...]
    logged_ns: tuple[int, ...] = ()
