"""From analyses to tables, kept beside a launch's traces and read back; whether what was read can be."""
