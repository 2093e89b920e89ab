"""What a cell's MEASURED step would be among other numbers of ranks and over other links, by its closed form."""
