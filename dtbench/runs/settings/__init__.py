"""What other settings of a scenario would do to its step, by the closed form held to the steps that were measured."""
