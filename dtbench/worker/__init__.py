"""One rank: builds the model on the real stack, runs the phases, writes what it saw. The only room that imports torch."""
