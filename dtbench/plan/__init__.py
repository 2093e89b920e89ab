"""What a scenario means on this machine: ranks and mesh, what must cross the wire, why it cannot run."""
