"""Programs of torch, run on processes of this machine's CPU and recorded as captures (`docs/capture.md`).

The only room that imports torch. It runs the code that it is given; what it records is read by the inert readers.
"""
