"""Make sure that no Ctrl-C is lost.

Python drops a KeyboardInterrupt that is raised during garbage collection or in a
callback from compiled code, and the work would go on as if nothing had happened. So we
also record the signal, and loops check the record.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_pressed_before_a_loop = False


@contextmanager
def noting_ctrl_c() -> Iterator[Callable[[], bool]]:
    """Record a Ctrl-C for the next loop that checks, in case Python drops it.

    Yields a function that returns whether there was one that no loop has seen.
    """
    global _pressed_before_a_loop

    def note():
        global _pressed_before_a_loop
        _pressed_before_a_loop = True

    with _also_calling(note):
        try:
            yield lambda: _pressed_before_a_loop
        finally:
            _pressed_before_a_loop = False


@contextmanager
def noticing_ctrl_c() -> Iterator[Callable[[], None]]:
    """Record a Ctrl-C, and yield a function that raises it again.

    Call that function in a loop. Signals only arrive in the main thread.
    """
    global _pressed_before_a_loop
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
            _pressed_before_a_loop = False  # the loop has checked


@contextmanager
def _also_calling(note: Callable[[], None]) -> Iterator[None]:
    """Call `note` on Ctrl-C, before the usual handler."""
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
