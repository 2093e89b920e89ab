"""The TensorBoard plugin: runs below the log directory, looked at in tabs; nothing heavy is imported at its start."""
