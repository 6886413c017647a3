"""What ``flashperf.compare`` is made of: a pair, its sides, how it is sent to processes, run there and told."""
