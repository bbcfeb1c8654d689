"""The equations by which operators of `aten` become operators of the operator table, by family.

Each is a row with its statement; the tests hold every row to numbers, to arithmetic modulo a prime, and to torch.
"""
