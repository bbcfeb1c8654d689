"""An independent executor of plans on small real numbers, with generators of correct plans and of broken ones.

Nothing here imports the operator table or the proof: what an operator means is written down a second time, in NumPy.
"""
