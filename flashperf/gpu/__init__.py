"""Timing on a GPU: events behind a held stream, graphs, clocks, and what to conclude where they disagree.

Importing any of it needs neither CuPy nor a GPU.
"""
