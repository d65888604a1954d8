"""Ctrl-C that is not lost.

Python drops the exception where it comes up amid garbage collection or a callback from
compiled code: the work would go on as if nothing had been pressed. So it is noted too.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_pressed_before_a_loop = False


@contextmanager
def noting_ctrl_c() -> Iterator[None]:
    """Note a Ctrl-C for the next loop that asks, should its exception be dropped."""

    def note():
        global _pressed_before_a_loop
        _pressed_before_a_loop = True

    with _also_calling(note):
        try:
            yield
        finally:
            _forget()


@contextmanager
def noticing_ctrl_c() -> Iterator[Callable[[], None]]:
    """Note a Ctrl-C, beside its exception; yields what raises it once more.

    To be asked for in a loop, from its main thread; elsewhere no signal arrives.
    """
    pressed = _pressed_before_a_loop

    def note():
        nonlocal pressed
        pressed = True

    def raise_if_pressed():
        if pressed:
            raise KeyboardInterrupt

    with _also_calling(note):
        try:
            yield raise_if_pressed
        finally:
            _forget()  # the loop has asked


def _forget() -> None:
    global _pressed_before_a_loop
    _pressed_before_a_loop = False


@contextmanager
def _also_calling(note: Callable[[], None]) -> Iterator[None]:
    """Have Ctrl-C call this before what it does anyway."""
    usual = signal.getsignal(signal.SIGINT)
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or not callable(usual):
        yield
        return

    def handle(number, frame):
        note()
        usual(number, frame)

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
