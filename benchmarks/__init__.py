"""Benchmarks, which need a clone of the repository; the wheel does not contain them.

- `speed/`: `ncai bench`, our speed and that of peers, measured in turn on one machine;
- `quality/`: `ncai bench quality`, the predictive densities of our methods and of
  peers;
- `references/`: reference posteriors by long sampling, and studies that are not in the
  paper, each run as `python -m benchmarks.references.NAME`.

Peers have their own environment (`make peers`), so they run as child processes that
read a task (JSON) and print their measurements (JSON).
"""
