"""What an event is: tables of names for kernels and for operators, the user's own patterns, and what no rule knows."""
