"""Rules on pipeline schedules."""
