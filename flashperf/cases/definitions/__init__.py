"""One module per open case, each with a ``CASE``. A new public report is a new file here and nothing else."""
