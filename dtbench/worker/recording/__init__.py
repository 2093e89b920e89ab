"""What a rank says of itself while it runs: its collectives, who asked for them, its milestones."""
