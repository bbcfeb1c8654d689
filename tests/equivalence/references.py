"""References that several modules compare plans with."""

from __future__ import annotations

TWO_LAYERS = """
weight w f32[8,8]
weight v f32[8,8]
input x f32[8,8]
loss l
program
  y = linear(x, w)
  g = gelu(y)
  z = linear(g, v)
  q = gelu(z)
  l = sum(q)
  dq = backward l (grad(l))
  dz = backward q (dq)
  dg, grad(v) = backward z (dz)
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
"""

ONE_LAYER = """
weight w f32[8,8]
input x f32[8,8]
loss l
program
  y = linear(x, w)
  g = gelu(y)
  l = sum(g)
  dg = backward l (grad(l))
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
"""

LOOKED_UP = """
weight w f32[16,8]
weight v f32[4,8]
input x i64[8]
loss l
program
  h = embedding(x, w)
  y = linear(h, v)
  q = gelu(y)
  l = sum(q)
  dq = backward l (grad(l))
  dy = backward q (dq)
  dh, grad(v) = backward y (dy)
  _, grad(w) = backward h (dh)
"""

LABELLED = """
weight w f32[8,8]
input x f32[8,8]
output g
loss l
program
  y = linear(x, w)
  g = gelu(y)
  l = sum(g)
  dg = backward l (grad(l))
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
"""

STREAMED = """
weight w f32[4,4]
input x f32[4,4]
loss l f32[]
program
  y = linear(x, w)
  g = gelu(y)
  l = sum(g)
  dg = backward l (grad(l))
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
"""

LAYERS = """weight w f32[8,4]
weight v f32[4,8]
input x f32[6,4]
loss l
program
  h = linear(x, w)
  a = gelu(h)
  y = linear(a, v)
  s = pow(y, 2)
  l: f32[] = sum(s)
"""
