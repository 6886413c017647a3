"""Scenarios: what belongs to a process or a machine rather than to a call, each measured with its own total."""
