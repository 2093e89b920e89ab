"""Why a scenario cannot run as it is: sizes, options that do not go together, what torch refuses."""
