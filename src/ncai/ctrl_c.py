"""Ctrl-C that is not lost."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def noticing_ctrl_c() -> Iterator[Callable[[], None]]:
    """Note a Ctrl-C, beside its exception; yields what raises it once more.

    Python drops the exception where it comes up amid garbage collection or a callback
    from compiled code: the work would go on as if nothing had been pressed. To be
    asked for in a loop, from its main thread; elsewhere no signal arrives.
    """
    usual = signal.getsignal(signal.SIGINT)
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or not callable(usual):
        yield lambda: None
        return
    pressed = False

    def note(number, frame):
        nonlocal pressed
        pressed = True
        usual(number, frame)

    def raise_if_pressed():
        if pressed:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, note)
    try:
        yield raise_if_pressed
    finally:
        signal.signal(signal.SIGINT, usual)
