"""Memory traffic of CUDA kernels on the emulator: requests of warps, sectors, bank conflicts, simulated caches."""
