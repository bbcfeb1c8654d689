"""Facts about training frameworks: options, types, choices and defaults."""
