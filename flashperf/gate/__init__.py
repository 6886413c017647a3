"""The regression gate: slower, no slower than D, or can't tell, at an error rate that is known.

``rule`` decides from estimates, ``saved`` makes estimates of two saved runs, ``pairs`` of two revisions whose
processes take turns; the rest finds, reads and prints (docs/gate.md).
"""
