"""A person's own training loop, measured like dtbench's: same phases, same files, no scenario and no plan."""
