"""Steps that look for missing waits: results come only when somebody waits for them, and are poison until then."""
