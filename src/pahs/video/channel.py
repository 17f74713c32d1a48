"""A bounded queue between two threads. Both of them can close it, so that neither waits for ever."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Closed(Exception):  # noqa: N818 - not an error
    """The other thread has closed the channel."""


class Channel(Generic[T]):
    """`put` waits until the queue is not full, iteration waits for items and ends when the channel is closed.

    If a thread closes it with an exception, the other thread raises this exception, in `put` as well as in iteration.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._error: BaseException | None = None

    def put(self, item: T) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._items) < self._size)
            if self._closed:
                raise self._error or Closed
            self._items.append(item)
            self._changed.notify_all()

    def close(self, error: BaseException | None = None, *, drop: bool = False) -> None:
        """No more items; `drop` also forgets those that nobody took yet."""
        with self._changed:
            self._closed = True
            self._error = self._error or error
            if drop:
                self._items.clear()
            self._changed.notify_all()

    def raise_error(self) -> None:
        """Raise what the channel was closed with, if anything."""
        if self._error is not None:
            raise self._error

    def __iter__(self) -> Iterator[T]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or bool(self._items))
                if not self._items:
                    if self._error is not None:
                        raise self._error
                    return
                item = self._items.popleft()
                self._changed.notify_all()
            yield item
