"""Infer placements (Replicate, Shard, Partial) of local tensors and the defects that they show."""
