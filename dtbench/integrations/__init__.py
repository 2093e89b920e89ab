"""Where others call dtbench: callbacks of their training loops, and pytest; a module for each, which imports it."""
