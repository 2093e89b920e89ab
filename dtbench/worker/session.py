"""One rank from model to results: the story that its other modules tell in detail."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from dtbench.store.records.extras import RankExtras
from dtbench.store.records.rank import RankRecord
from dtbench.worker.extras.extra import Extra, Finding, Trained, Watch
from dtbench.worker.extras.registered import EXTRAS
from dtbench.worker.loop.context import RankContext
from dtbench.worker.loop.stack import build_stack
from dtbench.worker.loop.training import train
from dtbench.worker.record import make_record


def run_rank(at: RankContext, extras: Sequence[Extra] = EXTRAS) -> RankRecord:
    """Build, warm up, measure, profile; then let every extra find out what it is for. Returns all that is known."""
    found: dict[str, Finding] = {}
    with _watching(at, extras) as watches:
        stack = build_stack(at)
        training = train(at, stack, lambda: _end_step(watches.values()))

        def tell() -> RankRecord:
            seen = {name: watch.read() for name, watch in watches.items()}
            return _add(make_record(at, stack, training), {**found, **seen})

        trained = Trained(at, stack.step, stack.batches, training.next_step, tell)
        for extra in extras:
            if not extra.is_unwatched:
                found |= _study(extra, trained)
    record = tell()  # of what it asks torch no watch knows
    for extra in extras:
        if extra.is_unwatched:
            record = _add(record, _study(extra, trained))
    return record


@contextmanager
def _watching(at: RankContext, extras: Sequence[Extra]) -> Iterator[dict[str, Watch]]:
    """Let extras look on that were asked to; gives their watches by name."""
    asked = {extra.name: extra.watch(at) for extra in extras}
    watches = {name: watch for name, watch in asked.items() if watch is not None}
    with ExitStack() as contexts:
        for watch in watches.values():
            contexts.enter_context(watch.context)
        yield watches


def _end_step(watches: Iterable[Watch]) -> None:
    for watch in watches:
        watch.after_step()


def _study(extra: Extra, trained: Trained) -> dict[str, Finding]:
    """Run an extra's steps (collective), unless ranks may be at different places; gives what it found by its name."""
    finding = None if trained.at.carrier.is_abandoned else extra.study(trained)
    return {} if finding is None else {extra.name: finding}


def _add(record: RankRecord, found: dict[str, Finding]) -> RankRecord:
    """Return the record with what extras found."""
    records = {name: finding.record for name, finding in found.items() if finding.record is not None}
    receipts = (receipt for finding in found.values() for receipt in finding.receipts)
    return record.model_copy(
        update={
            "extras": RankExtras.model_validate({**dict(record.extras), **records}),
            "receipts": (*record.receipts, *receipts),
        }
    )
