"""Which point of a grid of settings takes the shortest step, found with few launches and held to the unchanged cell."""
