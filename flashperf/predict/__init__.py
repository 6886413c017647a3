"""What is known of a CUDA kernel before any GPU ran it: machine code, occupancy, the bound that roofs give it."""
