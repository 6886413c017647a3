"""Everything that a GPU is needed for, in one command and one folder: ``python -m flashperf.gpu_run``.

Stages run one after the other in processes of their own, each inside a time limit; a stage that fails doesn't stop
the next. Without a GPU the same list runs through the emulator at tiny sizes: for checks, never for times.
"""
