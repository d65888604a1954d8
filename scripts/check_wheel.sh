#!/usr/bin/env bash
# Does the wheel work where the source tree is not? Builds it, installs it into a clean
# environment in a temporary folder, and runs the command from there.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
python="${PYTHON:-$root/.venv/bin/python}"
away="$(mktemp -d)"
trap 'rm -rf "$away"' EXIT

"$python" -m pip wheel -qq --no-deps --wheel-dir "$away" "$root"
"$python" -m venv "$away/env"
"$away/env/bin/python" -m pip install -qq --constraint "$root/constraints.txt" "$away"/ncai-*.whl

cd "$away"
unset PYTHONPATH
"$away/env/bin/ncai" --version
"$away/env/bin/ncai" --help > /dev/null
"$away/env/bin/ncai" demo --quick --out "$away/demo" > /dev/null
test -s "$away/demo/demo.png" && test -s "$away/demo/report.html"
# What was imported must be the wheel, not the tree.
"$away/env/bin/python" -c '
import sys, pathlib, ncai
home = pathlib.Path(ncai.__file__)
if not home.is_relative_to(sys.prefix):
    sys.exit(f"imported from {home}")
if not (home.parent / "py.typed").exists():
    sys.exit("py.typed is missing: type checkers would ignore the annotations")
'
echo "the wheel works: $(basename "$away"/ncai-*.whl)"
