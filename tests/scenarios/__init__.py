"""Small plans as an engineer writes them: mistakes, each with its correct twin, and correct plans of unusual form."""
