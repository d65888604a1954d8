"""What a measurement was made on."""

import datetime
import os
import platform
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("ncai", "jax", "jaxlib", "numpy", "scipy", "scikit-learn")


def describe_machine() -> dict:
    """Processor, cores, versions and date."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
        "date": datetime.date.today().isoformat(),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
