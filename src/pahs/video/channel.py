"""A bounded queue between two threads. Both of them can close it, so that neither waits for ever.

Ctrl-C and signals raise `KeyboardInterrupt` in the main thread, anywhere. Within the methods of `threading.Condition`
this can leave its lock taken, and every other thread waiting; `SimpleQueue` is safe there, hence no locks here.
"""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


class Closed(Exception):  # noqa: N818 - not an error
    """The other thread has closed the channel."""


class _End:
    """What wakes a thread that waits at a closed channel."""


_END = _End()


class Channel(Generic[T]):
    """`put` waits until the queue is not full, iteration waits for items and ends when the channel is closed.

    If a thread closes it with an exception, the other thread raises this exception, in `put` as well as in iteration.
    One thread puts, another takes; any thread closes.
    """

    def __init__(self, size: int) -> None:
        self._items: SimpleQueue[T | _End] = SimpleQueue()
        self._free: SimpleQueue[None] = SimpleQueue()
        for _ in range(size):
            self._free.put(None)
        self._closed = self._dropped = False
        self._error: BaseException | None = None

    def put(self, item: T) -> None:
        if not self._closed:
            self._free.get()
        if self._closed:
            raise self._error or Closed
        self._items.put(item)

    def close(self, error: BaseException | None = None, *, drop: bool = False) -> None:
        """No more items; `drop` also forgets those that nobody took yet."""
        self._error = self._error or error
        self._dropped = self._dropped or drop
        self._closed = True
        self._items.put(_END)
        self._free.put(None)

    def raise_error(self) -> None:
        """Raise what the channel was closed with, if anything."""
        if self._error is not None:
            raise self._error

    def __iter__(self) -> Iterator[T]:
        while True:
            item = self._items.get()
            if isinstance(item, _End) or self._dropped:
                self._items.put(_END)  # whoever asks once more must not wait
                self.raise_error()
                return
            self._free.put(None)
            yield item
            del item  # the queue does not keep what was taken
