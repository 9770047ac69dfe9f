"""Prefetch: prepare the next items in a background thread while the current one is used."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from puregraph.data.batches import Batch

ITEMS_AHEAD = 2  # items prepared ahead
CLOSING_SECONDS = 5.0  # seconds that `close` waits for a source that hangs; its thread then ends with the process


@contextmanager
def ahead(items: Iterator[Any], depth: int = ITEMS_AHEAD) -> Iterator[Iterator[Any]]:
    """Prepare items in a thread, `with ahead(items) as items:`; with a depth of 0, when they are read."""
    if depth:
        with Prefetch(items, depth) as made:
            yield made
    else:
        yield items


class Prefetch:
    """Iterate over an iterable in order, with up to `depth` items prepared ahead in a thread. An item must not change
    while the next ones are prepared.

    An exception of the iterable is raised here, at its position in the order, with its traceback. The thread ends with
    the iterable, or with `close`, which the `with` statement calls.

    >>> with Prefetch(range(3), depth=2) as items:
    ...     print(list(items))
    [0, 1, 2]
    """

    def __init__(self, source: Iterable[object], depth: int = ITEMS_AHEAD):
        self.ready: deque[Any] = deque()
        self.change = threading.Condition()
        self.ended = self.closed = False
        self.error: BaseException | None = None
        self.depth = depth
        self.thread = threading.Thread(target=self.fill, args=(source,), name="puregraph prefetch", daemon=True)
        self.thread.start()

    def fill(self, source: Iterable[Any]) -> None:
        """Run the loop of the thread."""
        items = iter(())
        try:
            items = iter(source)
            while self.put(items):
                pass
        except BaseException as error:  # raised again by the reader
            self.error = error
        finally:
            self.finish(items)

    def put(self, items: Iterator[Any]) -> bool:
        """Wait for a free slot, then make one item; False at the end."""
        with self.change:
            self.change.wait_for(lambda: self.closed or len(self.ready) < self.depth)
            if self.closed:
                return False
        for item in items:
            with self.change:
                self.ready.append(item)
                self.change.notify_all()
            return True
        return False

    def finish(self, items: Iterator[Any]) -> None:
        """Close the iterator in this thread, so that a generator's `finally` runs in the same thread as its body."""
        try:
            if hasattr(items, "close"):
                items.close()
        except BaseException as error:
            self.error = self.error or error
        with self.change:
            self.ended = True
            self.change.notify_all()

    def __iter__(self) -> Prefetch:
        return self

    def __next__(self) -> list[Batch] | None:
        with self.change:
            self.change.wait_for(lambda: self.ready or self.ended)
            if self.ready:
                item = self.ready.popleft()
                self.change.notify_all()
                return item
        error, self.error = self.error, None
        if error is not None:
            raise error
        raise StopIteration

    def close(self) -> None:
        """End the thread, and drop the items that it has prepared."""
        with self.change:
            self.closed = True
            self.change.notify_all()
        self.thread.join(CLOSING_SECONDS)
        self.ready.clear()

    def __enter__(self) -> Prefetch:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
