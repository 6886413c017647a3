"""The commands of the command line, one small function each; ``flashperf/cli.py`` registers them.

A module here is imported on every start: everything that measures, draws or computes is imported inside the
functions, so that ``flashperf --help`` needs neither NumPy nor torch.
"""
