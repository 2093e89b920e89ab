"""What a side tells: its launches as numbers, what they issued, and what of it is known of both sides."""
