"""Known situations on real ranks: whether dtbench names what was injected, with numbers drawn from a seed."""
