"""The operator table: the meaning of every operator, stated once."""
