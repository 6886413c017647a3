"""What the pytest layer is made of: one session of benches, the replay of samples, the summary."""
