"""Read folders of code that nnScaler generated, with their traced graph."""
