"""From traces and timings to tables: reads run folders, needs neither torch nor a GPU."""
