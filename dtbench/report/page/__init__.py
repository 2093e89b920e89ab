"""The words and tables of an answer, one wording for all who show it."""
