"""Every reason why a scenario cannot run: what ``dtbench check`` and ``dtbench run`` ask, in the order of its answers.

A row says what must hold, where that is asked, and what of the machine must be known (``dtbench.plan.rules.rule``).
``docs/reference/rules.md`` is made of it.
"""

from typing import Final

from dtbench.plan.rules.machine import LIMIT_RULES, MACHINE_RULES
from dtbench.plan.rules.newer_knobs import NEWER
from dtbench.plan.rules.problems import EXPOSURE, PROBLEMS, RANK_PROBLEMS
from dtbench.plan.rules.refusals import REFUSALS
from dtbench.plan.rules.rule import Rule

LIMITS: Final[tuple[Rule, ...]] = LIMIT_RULES
"""Asked first, and alone: what is beyond them takes too long to look at."""

RULES: Final[tuple[Rule, ...]] = (*PROBLEMS, *REFUSALS, *RANK_PROBLEMS, EXPOSURE, *NEWER, *MACHINE_RULES)
