"""What a device did: kernels by kind, collectives, the main lane and what it waited for, what was lost."""
