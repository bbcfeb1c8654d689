"""The rule pages: their loader, their expressions, their evaluation over configurations."""
