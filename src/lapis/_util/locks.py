"""Locks and cached values that survive a fork, and products of BLAS that a fork and the end of a program wait for.

A forked child has one thread. A lock that another thread held at that moment is never released there, so the child
would wait for it for ever. Every lock of this package is therefore renewed in a child.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")

_every: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


class ForkSafeLock:
    """A lock that is free in a forked child: `with guard.lock:`.

    The thread that holds it may take it again, as a signal handler does that interrupts it.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        _every.add(self)


class cached(Generic[Value]):  # noqa: N801 - used as a decorator, like `property`
    """A property that is computed once per object, and twice where two threads ask at the same time.

    functools.cached_property holds a lock while it computes, up to Python 3.11, and renews it in no child.
    """

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self.compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Value:
        if instance is None:  # asked of the class, as by tools that list its members
            return self  # type: ignore[return-value]
        # Python asks here only while the object's own dictionary has no such name.
        value = instance.__dict__[self.name] = self.compute(instance)
        return value


class _BlasSection:
    """`with blas_section:` around a product of matrices, by any number of threads at once.

    OpenBLAS, which numpy calls, stops its own threads when the process forks or ends, and waits for ever if another
    thread is inside it then. So a fork and the end of a program wait for the products in flight, and hold back others.
    """

    def __init__(self) -> None:
        self.inside: set[int] = set()
        self.alone: int | None = None
        self.changed = threading.Condition()

    def __enter__(self) -> None:
        own = threading.get_ident()
        with self.changed:
            self.changed.wait_for(lambda: self.alone in (None, own))
            self.inside.add(own)

    def __exit__(self, *_: object) -> None:
        with self.changed:
            self.inside.discard(threading.get_ident())
            self.changed.notify_all()

    def pause(self) -> None:
        """Wait until no other thread is inside, and let none begin."""
        own = threading.get_ident()
        with self.changed:
            self.changed.wait_for(lambda: self.alone in (None, own))
            self.alone = own
            self.changed.wait_for(lambda: self.inside <= {own})

    def resume(self) -> None:
        with self.changed:
            self.alone = None
            self.changed.notify_all()

    def renew(self) -> None:
        """In a forked child, where the other threads are gone."""
        self.changed, self.alone = threading.Condition(), None
        self.inside &= {threading.get_ident()}


blas_section = _BlasSection()
atexit.register(blas_section.pause)


def _renew() -> None:
    for guard in _every:
        # Another object, because the thread that forked may be inside the old lock and will release that one.
        guard.lock = threading.RLock()
    blas_section.renew()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(before=blas_section.pause, after_in_parent=blas_section.resume, after_in_child=_renew)
