"""The command line: `ncai`, or `python -m ncai`."""

import os
import signal


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback from the start on."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:
        # An import that raises KeyboardInterrupt may hide it or print a traceback, and
        # nothing has begun yet that we would have to end in order.
        signal.signal(signal.SIGINT, lambda *_: _stop())
    from ncai.cli.app import main as run

    if usual is signal.default_int_handler:
        signal.signal(signal.SIGINT, usual)
    run()


def _stop() -> None:
    os.write(2, b"Stopped.\n")
    os._exit(130)


if __name__ == "__main__":
    main()
