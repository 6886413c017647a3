"""CUDA kernels: a module per mechanism says what is launched, ``launcher`` runs it on a GPU or emulates it.

Importing any of these needs neither CuPy nor a GPU.
"""
