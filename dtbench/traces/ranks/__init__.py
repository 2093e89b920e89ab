"""Questions over ranks: which collectives belong together, whose clock is off, who waits for whom, how fast it went."""
