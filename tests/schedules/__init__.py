"""Pipeline schedules made by rule, lowered by rule, and broken on purpose."""
