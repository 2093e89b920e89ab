"""Known situations on real ranks: whether dtbench names what was injected, with numbers drawn from a seed.

::

    draw -> ddp_situations fsdp_situations -> situations -> run -> evidence -> judge -> records -> page document
            row sections words expectations expected_bounds          answers   cell_checks expectation_checks

What is injected, what must be found, and what was found lie apart, so that no row is judged by what it was made from.
"""
