"""A function over many items in threads. Ctrl-C at any moment leaves nobody waiting.

`ThreadPoolExecutor` waits with `threading.Condition`, whose lock stays taken where `KeyboardInterrupt` comes within its
methods: its threads then wait for ever, and so does who joins them. `SimpleQueue` has no such moment, nor has a thread
that is started without `threading.Thread`, which waits in the same way until it runs.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_in_threads(function: Callable[[T], R], items: Iterable[T], threads: int) -> list[R]:
    """`function` of each item, in order. The first error in this order is raised; what is not begun then, never is."""
    waiting: SimpleQueue[tuple[int, T]] = SimpleQueue()
    done: SimpleQueue[tuple[int, R | None, BaseException | None]] = SimpleQueue()
    count = 0
    for item in items:
        waiting.put((count, item))
        count += 1

    def work() -> None:
        with suppress(Empty):
            while True:
                number, item = waiting.get_nowait()
                try:
                    done.put((number, function(item), None))
                except BaseException as error:
                    done.put((number, None, error))

    results: dict[int, R] = {}
    errors: dict[int, BaseException] = {}
    try:
        for _ in range(min(threads, count)):
            _thread.start_new_thread(work, ())
        for expected in range(count):
            while expected not in results:
                if expected in errors:
                    raise errors[expected]
                number, result, error = done.get()
                if error is None:
                    results[number] = result  # type: ignore[assignment]
                else:
                    errors[number] = error
        return [results[number] for number in range(count)]
    finally:
        with suppress(Empty):
            while True:
                waiting.get_nowait()
