"""One rank: builds the model on the real stack, runs the phases, writes what it saw; the room that imports torch."""
