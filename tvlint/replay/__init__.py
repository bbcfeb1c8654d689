"""Plans run on numbers, every rank, by an interpreter that knows the operator table's semantics and nothing of relations."""
