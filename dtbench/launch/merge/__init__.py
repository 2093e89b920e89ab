"""Join what nodes without a common file system have of one run."""
