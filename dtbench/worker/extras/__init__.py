"""What a rank does beside training, each where a scenario asks for it: canary, estimates, state dict, lifecycle."""
