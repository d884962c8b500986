"""Carries completions from worker threads to asyncio event loops, many at a time.

Each loop has one mailbox. A completer appends the future to be woken and, if no delivery is on its
way, schedules one: ten thousand completions cross by a few wake-ups of the loop. No completion is
lost: a delivery clears ``_scheduled`` before it looks at the box, and a completer appends before it
reads ``_scheduled``, so either the delivery sees the item or the completer schedules another.
"""

import asyncio
import weakref
from collections import deque
from typing import Any


class Mailbox:
    """The completions on their way to one loop."""

    __slots__ = ("__weakref__", "_items", "_loop", "_scheduled")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._items: deque[asyncio.Future[None]] = deque()
        self._scheduled = False

    def post(self, future: "asyncio.Future[None]") -> None:
        """Wake ``future`` on its loop soon. Callable from any thread; a closed loop ignores it."""
        self._items.append(future)
        if self._scheduled:
            return
        self._scheduled = True
        loop = self._loop()
        try:
            if loop is None:
                raise RuntimeError
            loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # the loop is closed: nobody is left to be told
            self._scheduled = False
            self._items.clear()
        except BaseException:
            self._scheduled = False
            raise

    def _deliver(self) -> None:
        self._scheduled = False
        for _ in range(len(self._items)):
            try:
                future = self._items.popleft()
            except IndexError:
                return
            if not future.done():
                future.set_result(None)


# Weak on both sides: the watchers of unfinished tasks and the loop's own queue hold a mailbox, so
# that what was not delivered before a loop was closed keeps nothing alive.
_boxes: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[Mailbox]]" = (
    weakref.WeakKeyDictionary()
)


def box_of(loop: asyncio.AbstractEventLoop) -> Mailbox:
    """The mailbox of ``loop``; called on the loop's own thread."""
    reference = _boxes.get(loop)
    box = None if reference is None else reference()
    if box is None:
        box = Mailbox(loop)
        _boxes[loop] = weakref.ref(box)
    return box


def ended(task: Any) -> "asyncio.Future[None]":
    """An asyncio future of the running loop that is done once ``task`` is; it carries no result."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    box = box_of(loop)

    def tell(_task: Any) -> None:
        box.post(future)

    if not task._watch(tell):
        future.set_result(None)
    return future
