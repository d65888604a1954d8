"""Run the tests marked `slow` and record the outcome in results/slow_tests.md."""

import datetime
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path


def main() -> int:
    started = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-m", "slow", "-n", "2", "-q", "-rA"]
    done = subprocess.run(command, capture_output=True, text=True)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    minutes = (time.monotonic() - started) / 60
    lines = done.stdout.strip().splitlines()
    outcomes = [
        line
        for line in lines
        if line.startswith(("PASSED", "FAILED", "ERROR", "SKIPPED", "XFAIL"))
    ]
    Path("results").mkdir(exist_ok=True)
    Path("results/slow_tests.md").write_text(
        "# Last run of the slow tests\n\n"
        f"Command: `make test-slow`. Date: {datetime.date.today().isoformat()}. "
        f"Python {platform.python_version()}, jax {version('jax')}. "
        f"{minutes:.1f} minutes.\n\n"
        + "\n".join(f"- {line}" for line in outcomes)
        + f"\n\n{lines[-1].strip('= ') if lines else 'no output'}\n"
    )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
