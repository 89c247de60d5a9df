"""Calls with a state that one thread opens, uses and closes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from nsys_pp.read.interruptible import open_interruptibly


def test_one_other_thread_opens_the_state_makes_all_calls_and_closes_it() -> None:
    threads: list[threading.Thread] = []

    @contextmanager
    def open_state() -> Iterator[list[int]]:
        threads.append(threading.current_thread())
        yield [1, 2]
        threads.append(threading.current_thread())

    with open_interruptibly(open_state) as call:
        assert call(sum) == 3
        with pytest.raises(ZeroDivisionError):
            call(lambda state: sum(state) // 0)
        assert call(lambda state: threads.append(threading.current_thread())) is None
        assert len(threads) == 2
    assert len(threads) == 3
    assert {*threads} == {threads[0]}
    assert threads[0] is not threading.current_thread()
    assert not threads[0].is_alive()


def test_a_thread_other_than_the_main_one_makes_the_calls_itself() -> None:
    def work() -> tuple[object, object]:
        @contextmanager
        def open_state() -> Iterator[threading.Thread]:
            yield threading.current_thread()

        with open_interruptibly(open_state) as call:
            return call(lambda state: state), threading.current_thread()

    with ThreadPoolExecutor(1) as pool:
        opened, own = pool.submit(work).result()
    assert opened is own


def test_a_state_that_cannot_be_opened_is_the_error_of_the_call() -> None:
    @contextmanager
    def open_state() -> Iterator[None]:
        raise OSError("closed")
        yield

    with pytest.raises(OSError, match="closed"), open_interruptibly(open_state) as call:
        call(lambda state: state)
