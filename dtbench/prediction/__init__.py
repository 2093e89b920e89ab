"""How long a step takes on a link of known cost: closed forms, as a small simulator over programs of what hosts do.

::

    Scenario, Plan, Costs --> programs (ddp, fsdp1, fsdp2) --> simulate --> account --> Prediction --> Bounds

A program says what a rank's host does in one step: compute for so long, issue a collective, wait for it. Strategies are
written down in the order in which torch 2.13 issues, on gloo. What has no closed form is refused with a sentence.
"""
