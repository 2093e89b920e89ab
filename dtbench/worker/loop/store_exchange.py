"""Where the ranks of a launch tell each other a text, through torch's store and no collective."""

from dataclasses import dataclass

from dtbench.worker.loop.warmup import Store


@dataclass(frozen=True)
class StoreExchange:
    """One rank's end of it."""

    store: Store
    rank: int
    ranks: int

    def exchange(self, topic: str, text: str) -> list[str]:
        """Say something on a topic and return what every rank says, once all have."""
        self.store.set(f"{topic}/{self.rank}", text)
        return [bytes(self.store.get(f"{topic}/{rank}")).decode() for rank in range(self.ranks)]
