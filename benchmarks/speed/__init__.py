"""`ncai bench`: our speed beside that of peers, measured in turn on one machine.

`workers` of both kinds, ours and the peers', are run as child processes that read a
task (JSON) and print what they measured (JSON), so that peers can live in an
environment of their own.
"""
