"""One rank: from the columns of its trace to its account."""
