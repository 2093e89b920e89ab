"""All ranks of a job as one answer: who is which rank, what cannot be used, means and causes."""
