"""Reports as SARIF."""
