"""What a notebook gets: answers with DataFrames and plots."""
