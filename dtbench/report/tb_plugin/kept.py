"""Values that take long to make, kept by what they were made of."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar, cast

_T = TypeVar("_T")


@dataclass
class _Making:
    """A value, or that it is being made: whoever else asks for it waits for its lock alone."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    made: list[object] = field(default_factory=list)


@dataclass
class Kept:
    """A few values by key, the latest used ones; each is made once, by one thread."""

    most: int
    values: "OrderedDict[Hashable, _Making]" = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return the value of a key, made now where there is none."""
        with self.lock:
            making = self.values.setdefault(key, _Making())
            self.values.move_to_end(key)
            while len(self.values) > self.most:
                self.values.popitem(last=False)
        with making.lock:
            if not making.made:
                making.made.append(make())
            return cast("_T", making.made[0])
