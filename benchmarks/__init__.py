"""Measurements that need a clone of the repository; the wheel does not contain them.

- `speed/`: `ncai bench`, our speed beside that of peers, in turn on one machine;
- `quality/`: `ncai bench quality`, predictive densities beside those of peers;
- `references/`: reference posteriors by long sampling, and studies beside the paper,
  each run as `python -m benchmarks.references.NAME`.

Peers live in an environment of their own (`make peers`), so they run as child processes
that read a task (JSON) and print what they measured (JSON).
"""
