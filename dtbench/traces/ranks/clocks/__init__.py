"""How far the clocks of ranks are apart, when they were set, and which ranks share one."""
