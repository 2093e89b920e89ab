"""What was said of other settings, run: the unchanged cell and the changed ones in turns, forecast beside measured."""
