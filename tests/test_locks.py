"""A lock is free in a forked child, and a cached value is computed once."""

from __future__ import annotations

import os
import threading

from lapis._util.locks import ForkSafeLock, cached


def in_child(guard: ForkSafeLock) -> bool:
    """Whether a child forked now can take the lock."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if guard.lock.acquire(blocking=False) else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_lock_that_another_thread_holds_is_free_in_a_child() -> None:
    guard, taken, done = ForkSafeLock(), threading.Event(), threading.Event()

    def hold() -> None:
        with guard.lock:
            taken.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait()
    assert not guard.lock.acquire(blocking=False)
    assert in_child(guard)
    done.set()
    holder.join()


def test_a_thread_that_forks_inside_its_turn_leaves_it_in_parent_and_child() -> None:
    guard = ForkSafeLock()
    with guard.lock:
        pid = os.fork()
    if pid == 0:
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert guard.lock.acquire(blocking=False)


def test_a_cached_value_is_computed_once_per_object() -> None:
    class Counted:
        calls = 0

        @cached
        def value(self) -> int:
            """What it is."""
            self.calls += 1
            return 7

    one, other = Counted(), Counted()
    assert (one.value, one.value, one.calls, other.calls) == (7, 7, 1, 0)
    assert Counted.value.__doc__ == "What it is."  # what tools that list members see
