"""Outside files to values of the IR, one file a format; nothing from a file is executed, imported or evaluated."""
