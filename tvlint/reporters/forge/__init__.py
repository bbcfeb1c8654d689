"""Reports for forges and CI systems: GitHub, JUnit, Markdown, fingerprints."""
