"""The training state on its way out of the model and back: stages timed, counted and compared bit by bit."""
