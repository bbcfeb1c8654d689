"""Derive of one plan what each local tensor is of a logical term; needs no reference."""
