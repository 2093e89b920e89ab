"""Numbers of a training loop while it trains, without a profiler: who stands still for whom, and who is late."""
