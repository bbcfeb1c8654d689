"""The rows of the operator table, a module a family of operators."""
