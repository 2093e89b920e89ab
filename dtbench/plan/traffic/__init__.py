"""What must cross the wire in one training step: formulas over parameter shapes, held against every run's receipts.

Sizes follow nccl-tests: an all-reduce counts its tensor, an all-gather its whole output, a reduce-scatter its whole
input. Counts and sizes are per rank and step, after warm-up. Sources: torch 2.13's reducer
(``compute_bucket_assignment_by_size``), ``_flat_param.py`` (FSDP1), ``_fully_shard/_fsdp_collectives.py`` (FSDP2) and
DTensor's redistribution rules, each confirmed by ``tests/worker/test_traffic.py`` on real ranks.
"""
