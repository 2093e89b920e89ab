"""What a reader of the numbers must know, as values with a kind, a subject and numbers, and the words for each."""
