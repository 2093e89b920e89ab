"""What the host did: which span encloses which, the engine's nodes, modules, steps, who launched what."""
