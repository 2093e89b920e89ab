"""One cell of a run as numbers, and what a person should know before believing them."""
