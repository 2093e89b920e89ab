"""From a run folder to its answer: launches are read once, summed up by cell, and the checks judged."""
