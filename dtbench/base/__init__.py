"""Words, units, errors, records, names of ranges: what every room may use, and nothing that measures."""
