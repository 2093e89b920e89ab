"""The loop over steps and phases: batches, training steps, clocks, warm-up, the profiler around some of them."""
