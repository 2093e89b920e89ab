"""What ``--json`` prints: one module for each kind of answer, with its keys, their meaning, and the schema of all."""
