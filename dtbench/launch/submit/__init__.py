"""What is submitted to a cluster for a prepared run, and what its nodes have."""
