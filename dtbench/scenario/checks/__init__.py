"""What a scenario claims: functions that it reaches, checks that can fail, and the answer."""
