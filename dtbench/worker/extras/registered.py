"""Every extra of the worker, in the order in which their studies run and their receipts are told."""

from typing import Final

from dtbench.worker.extras.canary.canary import look_for_missing_waits
from dtbench.worker.extras.exposure.estimate import estimate_exposure
from dtbench.worker.extras.extra import Extra
from dtbench.worker.extras.functions import watch_functions, watch_lines
from dtbench.worker.extras.lifecycle import run_lifecycle_calls
from dtbench.worker.extras.state_dict.study import take_through_stages

EXTRAS: Final[tuple[Extra, ...]] = (
    Extra("exposure", study=estimate_exposure),
    Extra("lifecycle", study=run_lifecycle_calls),
    Extra("state_dict", study=take_through_stages),
    Extra("probes", watch=watch_functions),
    Extra("lines", watch=watch_lines),
    Extra("canary", study=look_for_missing_waits, is_unwatched=True),
)
