"""From YAML text to a tree that remembers where everything was written; words for what is wrong with it."""
