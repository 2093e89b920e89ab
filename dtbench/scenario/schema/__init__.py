"""What a scenario file may say: a frozen record for each section, with torch's own names and defaults."""
