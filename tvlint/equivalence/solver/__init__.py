"""Z3 as a second opinion on the operator table; the only room of the proof that imports it."""
