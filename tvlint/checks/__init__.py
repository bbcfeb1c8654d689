"""Plan rules, one function a rule: `<rule_name>.py` holds `check` for the page `rules/<rule-name>.md`."""
