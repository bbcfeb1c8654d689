"""Handles, buffers, streams, messages, the agreement of ranks, and the order of a training step."""

from __future__ import annotations

from tests.scenarios.scenario import correct, pair

_PIPE = """
mesh pp=2
micro-batches 4
weight w1 f32[8,8]
weight w2 f32[8,8]
input x f32[4,8]
input dl f32[4,8]
segment f0 forward stage 0 (x) -> (h)
  h = linear(x, w1)
  send h to pp+1 async sh
segment f1 forward stage 1 () -> (h, y)
  recv h: f32[4,8] from pp-1
  y = linear(h, w2)
segment b1 backward stage 1 mirror f1 (h, dl) -> (dh, grad(w2))
  dh, grad(w2) = backward (dl) of y = linear(h, w2)
  send dh to pp-1 async sd
segment b0 backward stage 0 mirror f0 (x) -> (grad(w1))
  recv dh: f32[4,8] from pp+1
  _, grad(w1) = backward (dh) of h = linear(x, w1)
segment done0 forward stage 0
  wait sh
segment done1 backward stage 1
  wait sd
segment step0 optimizer
  update w1
segment step1 optimizer
  update w2
"""


def _runs(*rows: str) -> str:
    """Programs of the pipeline above, one a rank: `f0:0 b0:0` runs `f0` and `b0` for micro-batch 0."""
    lines = []
    for rank, row in enumerate(rows):
        lines.append(f"program pp={rank}")
        for word in row.split():
            name, _, batch = word.partition(":")
            lines.append(f"  run {name}" + (f" micro-batch {batch}" if batch else ""))
    return "\n".join(lines) + "\n"


def _marked(mark: str, text: str) -> str:
    return "".join(f"{mark}{line}\n" for line in text.splitlines())


def _choice(buggy: tuple[str, ...], twin: tuple[str, ...]) -> str:
    return _PIPE + _marked("-", _runs(*buggy)) + _marked("+", _runs(*twin))


_GOOD = (
    "f0:0 f0:1 b0:0 f0:2 b0:1 f0:3 b0:2 b0:3 done0:0 done0:1 done0:2 done0:3 step0",
    "f1:0 b1:0 f1:1 b1:1 f1:2 b1:2 f1:3 b1:3 done1:0 done1:1 done1:2 done1:3 step1",
)
_GPIPE = (
    "f0:0 f0:1 f0:2 f0:3 b0:0 b0:1 b0:2 b0:3 done0:0 done0:1 done0:2 done0:3 step0",
    "f1:0 f1:1 f1:2 f1:3 b1:0 b1:1 b1:2 b1:3 done1:0 done1:1 done1:2 done1:3 step1",
)

SCENARIOS = (
    *pair(
        "result read before its wait",
        "missing-wait",
        """
mesh $MESH
weight w f32[8,16] tp:S(1)
input x f32[4,16] tp:S(1)
program
  p = linear(x, w)
  y = all-reduce(p) over tp async h
+ wait h
  z = gelu(y)
- wait h
""",
        ("tp=2", "dp=2 tp=2", "dp=2 cp=2 tp=2"),
    ),
    *pair(
        "received tensor read before its wait",
        "missing-wait",
        """
mesh pp=2
weight w f32[8,8]
input x f32[4,8]
program pp=0
  send x to pp+1
program pp=1
  recv h: f32[4,8] from pp-1 async r
+ wait r
  y = linear(h, w)
- wait r
""",
    ),
    *pair(
        "wait on another handle",
        "missing-wait double-wait",
        """
mesh tp=2
input a f32[4,8] tp:P
input b f32[4,8] tp:P
program
  x = all-reduce(a) over tp async h1
  y = all-reduce(b) over tp async h2
- wait h2
+ wait h1
  z = gelu(x)
- wait h1
+ wait h2
  u = gelu(y)
""",
    ),
    *pair(
        "wait on a handle that nobody issued",
        "unknown-handle handle-never-waited missing-wait",
        """
mesh tp=2
input a f32[4,8] tp:P
program
  x = all-reduce(a) over tp async h1
- wait h7
+ wait h1
  z = gelu(x)
""",
    ),
    *pair(
        "handle never waited for",
        "handle-never-waited",
        """
mesh dp=2
weight w f32[8,8]
input x f32[8,8] dp:S(0)
input dl f32[8,8] dp:S(0)
program
  y = linear(x, w)
  _, g = backward y (dl)
  r = all-reduce(g) over dp async h
+ wait h
""",
    ),
    *pair(
        "waited for twice",
        "double-wait",
        """
mesh tp=2
input a f32[4,8] tp:P
program
  x = all-reduce(a) over tp async h
  wait h
  z = gelu(x)
- wait h
""",
    ),
    *pair(
        "operand overwritten in flight",
        "buffer-in-flight",
        """
mesh tp=2
input a f32[4,8] tp:P
program
  x = all-reduce(a) over tp async h
- add(a!, 1.0)
  wait h
+ add(a!, 1.0)
""",
    ),
    *pair(
        "sent buffer overwritten before the send is done",
        "buffer-in-flight",
        """
mesh pp=2
weight w f32[8,8]
input x f32[4,8]
program pp=0
  h = linear(x, w)
  send h to pp+1 async s
- mul(h!, 2.0)
  wait s
+ mul(h!, 2.0)
program pp=1
  recv h: f32[4,8] from pp-1
""",
    ),
    *pair(
        "two receives into one storage",
        "buffer-in-flight",
        """
mesh pp=2
input x f32[4,8]
input z f32[4,8]
- tensor a f32[4,8] storage ring
- tensor b f32[4,8] storage ring
+ tensor a f32[4,8] storage even
+ tensor b f32[4,8] storage odd
program pp=0
  send x to pp+1
  send z to pp+1
program pp=1
  recv a from pp-1 async ra
  recv b from pp-1 async rb
  wait ra, rb
  y = add(a, b)
""",
    ),
    *pair(
        "in-place update while the gather reads the weight",
        "buffer-in-flight gather-overlaps-update",
        """
mesh dp=2
weight w f32[16,8] dp:S(0)
input x f32[8,8] dp:S(0)
input dl f32[8,16] dp:S(0)
program
  f = all-gather(w, dim=0) over dp
  y = linear(x, f)
  _, d = backward y (dl)
  grad(w) = reduce-scatter(d, dim=0) over dp
- next = all-gather(w, dim=0) over dp async g
- update w
- wait g
+ update w
+ next = all-gather(w, dim=0) over dp async g
+ wait g
""",
    ),
    *pair(
        "parameters gathered on another stream while the step runs",
        "gather-overlaps-update cross-stream-access",
        """
mesh dp=2
weight w f32[16,8] dp:S(0)
input d f32[16,8] dp:P
program
  grad(w) = reduce-scatter(d, dim=0) over dp
  record reduced
  await reduced on optimizer
  update w on optimizer
+ record stepped on optimizer
+ await stepped on gather
  full = all-gather(w, dim=0) over dp on gather
""",
    ),
    *pair(
        "value of another stream without an event",
        "cross-stream-access",
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
input x f32[4,16] tp:S(1)
program
  p = linear(x, w) on compute
+ record ready on compute
+ await ready on comm
  y = all-reduce(p) over tp on comm
+ record done on comm
+ await done on compute
  z = gelu(y) on compute
""",
    ),
    *pair(
        "event awaited before it is recorded",
        "cross-stream-access",
        """
mesh tp=2
input x f32[4,8]
program
- await e on comm
  a = gelu(x) on compute
  record e on compute
+ await e on comm
  b = relu(a) on comm
""",
    ),
    *pair(
        "both receive first",
        "send-recv-deadlock",
        """
mesh $MESH
input x f32[4,8]
program pp=0
- recv b: f32[4,8] from pp+1
  send x to pp+1
+ recv b: f32[4,8] from pp+1
program pp=1
  recv a: f32[4,8] from pp-1
  send x to pp-1
""",
        ("pp=2", "pp=2 tp=2"),
    ),
    *pair(
        "ring of receives",
        "send-recv-deadlock",
        """
mesh cp=4
input x f32[4,8]
program
- recv a: f32[4,8] from cp-1 ring
- send x to cp+1 ring
+ recv a: f32[4,8] from cp-1 ring batch b
+ send x to cp+1 ring batch b
""",
    ),
    *pair(
        "cycle of three ranks",
        "send-recv-deadlock",
        """
mesh pp=3
input x f32[4,8]
program ranks 0
- recv c: f32[4,8] from 2
  send x to 1
+ recv c: f32[4,8] from 2
program ranks 1
  recv a: f32[4,8] from 0
  send a to 2
program ranks 2
  recv b: f32[4,8] from 1
  send b to 0
""",
    ),
    *pair(
        "wait of a collective crosses a receive",
        "send-recv-deadlock collective-order-mismatch interleaved-communicators",
        """
mesh tp=2
input x f32[4,8] tp:P
program ranks 0
- y = all-reduce(x) over tp
- send y to 1
+ y = all-reduce(x) over tp
+ send y to 1
program ranks 1
- recv z: f32[4,8] from 0
- y = all-reduce(x) over tp
+ y = all-reduce(x) over tp
+ recv z: f32[4,8] from 0
""",
    ),
    *pair(
        "send nobody receives",
        "unmatched-send",
        """
mesh pp=2
input x f32[4,8]
program pp=0
  send x to pp+1
- send x to pp+1
program pp=1
  recv a: f32[4,8] from pp-1
""",
    ),
    *pair(
        "receive nobody sends",
        "unmatched-receive",
        """
mesh pp=2 tp=2
input x f32[4,8]
program pp=0
  send x to pp+1
program pp=1
  recv a: f32[4,8] from pp-1
- recv b: f32[4,8] from pp-1
""",
    ),
    *pair(
        "sent to another rank than receives",
        "unmatched-send unmatched-receive",
        """
mesh pp=3
input x f32[4,8]
program ranks 0
- send x to 2
+ send x to 1
program ranks 1
  recv a: f32[4,8] from 0
  send a to 2
program ranks 2
  recv b: f32[4,8] from 1
""",
    ),
    *pair(
        "tags differ",
        "unmatched-send unmatched-receive",
        """
mesh pp=2
input x f32[4,8]
program pp=0
  send x to pp+1 tag 1
program pp=1
- recv x1: f32[4,8] from pp-1 tag 2
+ recv x1: f32[4,8] from pp-1 tag 1
""",
    ),
    *pair(
        "two activations crossed",
        "mismatched-message misordered-message",
        """
mesh pp=2
weight w f32[8,8]
input x f32[4,8]
program pp=0
  a = linear(x, w)
  b = gelu(a)
  send a to pp+1
  send b to pp+1
program pp=1
- recv b: f32[4,8] from pp-1
- recv a: f32[4,8] from pp-1
+ recv a: f32[4,8] from pp-1
+ recv b: f32[4,8] from pp-1
""",
    ),
    *pair(
        "one activation sent twice",
        "mismatched-message",
        """
mesh pp=2
weight w f32[8,8]
input x f32[4,8]
program pp=0
  a = linear(x, w)
  b = gelu(a)
  send a to pp+1
- send a to pp+1
+ send b to pp+1
program pp=1
  recv a: f32[4,8] from pp-1
  recv b: f32[4,8] from pp-1
""",
    ),
    *pair(
        "another gradient than that of the micro-batch sent back",
        "mismatched-message use-before-definition",
        """
mesh pp=2
micro-batches 2
weight w0 f32[8,8]
weight w1 f32[8,8]
input x f32[4,8]
input dy f32[4,8]
program pp=0
  a0 = linear(x, w0)
  send a0 to pp+1
  micro-batch 1
  a1 = linear(x, w0)
  send a1 to pp+1
  micro-batch 0
  recv d0: f32[4,8] from pp+1
  _, grad(w0) = backward a0 (d0)
  micro-batch 1
  recv d1: f32[4,8] from pp+1
  _, grad(w0) = backward a1 (d1)
  update w0
program pp=1
  recv a0: f32[4,8] from pp-1
  y0 = linear(a0, w1)
  micro-batch 1
  recv a1: f32[4,8] from pp-1
  y1 = linear(a1, w1)
  micro-batch 0
  d0, grad(w1) = backward y0 (dy)
  send d0 to pp-1
  micro-batch 1
  d1, grad(w1) = backward y1 (dy)
- send d0 to pp-1
+ send d1 to pp-1
  update w1
""",
    ),
    *pair(
        "a name on the sender that the receiver gives its input",
        "mismatched-message",
        """
mesh pp=2
weight w f32[8,8]
input x f32[4,8]
program pp=0
  h = linear(x, w)
  y = gelu(h)
- send y to pp+1 tag 1
+ send y to pp+1
program pp=1
- recv h: f32[4,16] from pp-1 tag 1
+ recv h: f32[4,8] from pp-1
  z = linear(h, w)
""",
    ),
    *pair(
        "a split backward without its second half for one micro-batch",
        "unbalanced-backward",
        """
mesh dp=2
micro-batches 2
weight w f32[8,8]
input x f32[8,8] dp:S(0)
input dy f32[8,8] dp:S(0)
output g
program
  y0 = linear(x, w)
  g, _ = backward y0 (dy)
  _, grad(w) = backward y0 (dy)
  micro-batch 1
  y1 = linear(x, w)
  g, _ = backward y1 (dy)
+ _, grad(w) = backward y1 (dy)
  reduce-gradients w over dp
  update w
""",
    ),
    *pair(
        "the second half of a split backward run twice",
        "unbalanced-backward",
        """
mesh dp=2
micro-batches 2
weight w f32[8,8]
input x f32[8,8] dp:S(0)
input dy f32[8,8] dp:S(0)
segment there forward (x) -> (y)
  y = linear(x, w)
segment input backward mirror there (x, y, dy) -> (dx)
  dx, _ = backward y (dy)
segment weight backward mirror there (x, y, dy) -> ()
  _, grad(w) = backward y (dy)
segment step optimizer
  reduce-gradients w over dp
  update w
program
  run there micro-batch 0-1
  run input micro-batch 0-1
  run weight micro-batch 0-1
- run weight micro-batch 1
  run step
""",
    ),
    *pair(
        "received in another shape",
        "mismatched-message",
        """
mesh pp=2
input x f32[4,8]
program pp=0
  send x to pp+1
program pp=1
- recv a: f32[8,4] from pp-1
+ recv a: f32[4,8] from pp-1
""",
    ),
    *pair(
        "received in another dtype",
        "mismatched-message",
        """
mesh pp=2 tp=2
input x bf16[4,8]
program pp=0
  send x to pp+1
program pp=1
- recv a: f32[4,8] from pp-1
+ recv a: bf16[4,8] from pp-1
""",
    ),
    *pair(
        "micro-batches received in another order",
        "mismatched-message misordered-message use-before-definition send-recv-deadlock",
        _choice((_GPIPE[0], _GPIPE[1].replace("f1:0 f1:1", "f1:1 f1:0")), _GPIPE),
    ),
    *pair(
        "members issue collectives in different orders",
        "collective-order-mismatch",
        """
mesh $MESH
input a f32[4,8] tp:P
input m f32[4,8] tp:P(max)
program tp=0
  x = all-reduce(a) over tp
  y = all-reduce max(m) over tp
program tp=1
- y = all-reduce max(m) over tp
  x = all-reduce(a) over tp
+ y = all-reduce max(m) over tp
""",
        ("tp=2", "dp=2 tp=2"),
    ),
    *pair(
        "same collectives of other tensors in different orders",
        "collective-order-mismatch mismatched-collective",
        """
mesh tp=2
input a f32[4,8] tp:P
input b f32[4,8] tp:P
program tp=0
  x = all-reduce(a) over tp
  y = all-reduce(b) over tp
program tp=1
- y = all-reduce(b) over tp
  x = all-reduce(a) over tp
+ y = all-reduce(b) over tp
""",
    ),
    *pair(
        "one member runs a collective less",
        "missing-collective-member",
        """
mesh tp=4
input a f32[4,8] tp:P
input b f32[4,8] tp:P
program ranks 0-2
  x = all-reduce(a) over tp
  y = all-reduce(b) over tp
program ranks 3
  x = all-reduce(a) over tp
+ y = all-reduce(b) over tp
""",
    ),
    *pair(
        "collective in a branch of rank 0",
        "missing-collective-member",
        """
mesh dp=2
input x f32[4,8]
program dp=0
  m = mean(x)
- s = all-reduce avg(m) over dp
program dp=1
  m = mean(x)
""",
    ),
    *pair(
        "kinds differ",
        "collective-order-mismatch mismatched-collective wrong-collective-group",
        """
mesh tp=2
input a f32[4,8] tp:P
program tp=0
  y = all-reduce(a) over tp
program tp=1
- y: f32[2,8] = reduce-scatter(a, dim=0) over tp
+ y = all-reduce(a) over tp
""",
    ),
    *pair(
        "two communicators in opposite orders",
        "interleaved-communicators",
        """
mesh dp=2 tp=2
input a f32[4,8] tp:P
input b f32[4,8] dp:P
program ranks 0,3
  x = all-reduce(a) over tp
  y = all-reduce(b) over dp
program ranks 1,2
- y = all-reduce(b) over dp
  x = all-reduce(a) over tp
+ y = all-reduce(b) over dp
""",
    ),
    *pair(
        "two asynchronous communicators in opposite orders",
        "interleaved-communicators",
        """
mesh tp=2
communicator one over ranks 0,1
communicator two over ranks 0,1
input a f32[4,8] tp:P
input b f32[4,8] tp:P
program ranks 0
  x = all-reduce(a) over one async h1
  y = all-reduce(b) over two async h2
  wait h1, h2
program ranks 1
- y = all-reduce(b) over two async h2
  x = all-reduce(a) over one async h1
+ y = all-reduce(b) over two async h2
  wait h1, h2
""",
    ),
    *pair(
        "asynchronous tensor and data collectives in opposite orders",
        "interleaved-communicators",
        """
mesh dp=2 tp=2
input a f32[4,8] tp:P
input b f32[4,8] dp:P
program ranks 0,3
  x = all-reduce(a) over tp async h1
  y = all-reduce(b) over dp async h2
  wait h1, h2
program ranks 1,2
- y = all-reduce(b) over dp async h2
  x = all-reduce(a) over tp async h1
+ y = all-reduce(b) over dp async h2
  wait h1, h2
""",
    ),
    *correct(
        "opposite orders that waits keep apart",
        """
mesh tp=2
input a f32[4,8] tp:P
input b f32[4,8] tp:P
program
  x = all-reduce(a) over tp async h1
  wait h1
  y = all-reduce(b) over tp async h2
  wait h2
""",
    ),
    *pair(
        "gradients reduced before the last micro-batch",
        "reducer-before-last-backward",
        """
mesh dp=2
micro-batches 2
weight w f32[8,8]
input x f32[4,8] dp:S(0)
input dl f32[4,8] dp:S(0)
segment fwd forward (x) -> (y)
  y = linear(x, w)
segment bwd backward mirror fwd (x, dl) -> (grad(w))
  _, grad(w) = backward (dl) of y = linear(x, w)
segment red reduce
  reduce-gradients w over dp
segment step optimizer
  update w
program
  run fwd micro-batch 0
  run bwd micro-batch 0
- run red
  run fwd micro-batch 1
  run bwd micro-batch 1
+ run red
  run step
""",
    ),
    *pair(
        "optimizer step before the last backward",
        "update-before-final-gradient",
        """
mesh dp=2
micro-batches 2
weight w f32[8,8]
input x f32[4,8] dp:S(0)
input dl f32[4,8] dp:S(0)
segment fwd forward (x) -> (y)
  y = linear(x, w)
segment bwd backward mirror fwd (x, dl) -> (grad(w))
  _, grad(w) = backward (dl) of y = linear(x, w)
segment step optimizer
  reduce-gradients w over dp
  update w
program
  run fwd micro-batch 0
  run bwd micro-batch 0
  run fwd micro-batch 1
- run step
  run bwd micro-batch 1
+ run step
""",
    ),
    *pair(
        "optimizer step before the reduction",
        "update-before-final-gradient",
        """
mesh dp=2
weight w f32[8,8]
input x f32[4,8] dp:S(0)
input dl f32[4,8] dp:S(0)
program
  y = linear(x, w)
  _, grad(w) = backward y (dl)
- update w
  reduce-gradients w over dp
+ update w
""",
    ),
    *pair(
        "optimizer step while the reduction is under way",
        "missing-wait update-before-final-gradient",
        """
mesh dp=2
weight w f32[8,8]
input x f32[4,8] dp:S(0)
input dl f32[4,8] dp:S(0)
program
  y = linear(x, w)
  _, grad(w) = backward y (dl)
  reduce-gradients w over dp async h
+ wait h
  update w
- wait h
""",
    ),
    *pair(
        "scattered gradient of the optimizer still under way",
        "missing-wait update-before-final-gradient",
        """
mesh dp=2
weight w f32[16,8] dp:S(0)
input d f32[16,8] dp:P
program
  grad(w) = reduce-scatter(d, dim=0) over dp async h
+ wait h
  update w
- wait h
""",
    ),
    *pair(
        "a backward is missing",
        "unbalanced-backward schedule-missing-backward",
        _choice((_GOOD[0].replace("b0:3 ", ""), _GOOD[1]), _GOOD),
    ),
    *pair(
        "a forward runs twice",
        "repeated-forward schedule-repeated-forward unmatched-send",
        _choice((_GOOD[0].replace("f0:3", "f0:3 f0:3"), _GOOD[1]), _GOOD),
    ),
    *pair(
        "a micro-batch too many",
        "micro-batch-out-of-range schedule-micro-batch-out-of-range",
        _choice((_GOOD[0].replace(":3", ":4"), _GOOD[1].replace(":3", ":4")), _GOOD),
    ),
    *pair(
        "backward before its forward",
        "use-before-definition schedule-out-of-order send-recv-deadlock",
        _choice((_GOOD[0], _GOOD[1].replace("f1:0 b1:0", "b1:0 f1:0")), _GOOD),
    ),
    *pair(
        "no warm-up on the first pipeline stage",
        "schedule-short-warm-up send-recv-deadlock schedule-out-of-order use-before-definition",
        _choice(
            (
                _GOOD[0].replace("f0:0 f0:1 b0:0", "f0:0 b0:0 f0:1 b0:1").replace("f0:2 b0:1", "f0:2"),
                _GOOD[1].replace("f1:0 b1:0 f1:1 b1:1", "f1:0 f1:1 b1:0 b1:1"),
            ),
            _GOOD,
        ),
    ),
    *correct("one forward one backward", _PIPE + _runs(*_GOOD)),
    *correct("GPipe", _PIPE + _runs(*_GPIPE)),
    *correct(
        "neighbours exchange with buffered sends",
        """
mesh pp=2
input x f32[4,8]
program
  send x to pp+1 ring async s1
  send x to pp-1 ring async s2
  recv a: f32[4,8] from pp-1 ring async r1
  recv b: f32[4,8] from pp+1 ring async r2
  wait s1, s2, r1, r2
""",
    ),
    *correct(
        "communication on another stream with events",
        """
mesh dp=2 tp=2
weight w f32[8,16] tp:S(1)
input x f32[4,16] dp:S(0) tp:S(1)
program
  p = linear(x, w)
  record ready on main
  await ready on comm
  y = all-reduce(p) over tp on comm
  record done on comm
  q = gelu(x)
  await done on main
  z = add(y, 1.0)
""",
    ),
    *correct(
        "next gather issued while the layer computes",
        """
mesh dp=4
weight w1 f32[8,8] dp:S(0)
weight w2 f32[8,8] dp:S(0)
weight w3 f32[8,8] dp:S(0)
input x f32[8,8] dp:S(0)
program
  f1 = all-gather(w1, dim=0) over dp async g1 on gather
  wait g1
  f2 = all-gather(w2, dim=0) over dp async g2 on gather
  h1 = linear(x, f1)
  wait g2
  f3 = all-gather(w3, dim=0) over dp async g3 on gather
  h2 = linear(h1, f2)
  wait g3
  h3 = linear(h2, f3)
""",
    ),
    *correct(
        "isend of the activation, waited for before its storage is used again",
        """
mesh pp=2
input x f32[4,8]
tensor h0 f32[4,8] storage out
tensor h1 f32[4,8] storage out
program pp=0
  h0 = gelu(x)
  send h0 to pp+1 async s
  wait s
  h1 = relu(x)
  send h1 to pp+1 async s
  wait s
program pp=1
  recv a: f32[4,8] from pp-1
  recv b: f32[4,8] from pp-1
""",
    ),
    *pair(
        "updated shards gathered before the step",
        "gather-overlaps-update buffer-in-flight update-before-final-gradient stale-gather",
        """
mesh dp=2
weight w f32[16,8] dp:S(0)
input d f32[16,8] dp:P
input x f32[4,8] dp:S(0)
program
  grad(w) = reduce-scatter(d, dim=0) over dp
- full = all-gather(w, dim=0) over dp async g
  update w
+ full = all-gather(w, dim=0) over dp async g
  wait g
  y = linear(x, full)
""",
    ),
    *pair(
        "fp8 scale from an amax under way",
        "missing-wait",
        """
mesh tp=2
input x bf16[8,8] tp:S(0)
program
  a = amax(x)
  m = all-reduce max(a) over tp async h
+ wait h
  s = reciprocal(m)
  q: f8e4m3[4,8] = quantize(x, s)
- wait h
""",
    ),
    *pair(
        "a chunk's result sent to the wrong pipeline stage",
        "unmatched-send unmatched-receive send-recv-deadlock",
        """
mesh pp=4
input x f32[4,8]
program ranks 0
  send x to 1
program ranks 1
  recv a: f32[4,8] from 0
- send a to 3
+ send a to 2
program ranks 2
  recv b: f32[4,8] from 1
  send b to 3
program ranks 3
  recv c: f32[4,8] from 2
""",
    ),
    *pair(
        "backward of a pipeline stage issued in another order than its neighbour expects",
        "mismatched-message misordered-message send-recv-deadlock",
        """
mesh pp=2
micro-batches 2
weight w f32[8,8]
weight u f32[8,8]
input x f32[4,8]
input dl f32[4,8]
segment f0 forward stage 0 (x) -> (h)
  h = linear(x, w)
  send h to pp+1
segment f1 forward stage 1 () -> (h, y)
  recv h: f32[4,8] from pp-1
  y = linear(h, u)
segment b1 backward stage 1 mirror f1 (h, dl) -> (dh, grad(u))
  dh, grad(u) = backward (dl) of y = linear(h, u)
  send dh to pp-1
segment b0 backward stage 0 mirror f0 (x) -> (grad(w))
  recv dh: f32[4,8] from pp+1
  _, grad(w) = backward (dh) of h = linear(x, w)
program pp=0
  run f0 micro-batch 0-1
- run b0 micro-batch 1
- run b0 micro-batch 0
+ run b0 micro-batch 0
+ run b0 micro-batch 1
program pp=1
  run f1 micro-batch 0
  run b1 micro-batch 0
  run f1 micro-batch 1
  run b1 micro-batch 1
""",
    ),
    *pair(
        "virtual pipeline chunks in another order",
        "mismatched-message misordered-message use-before-definition send-recv-deadlock schedule-out-of-order",
        """
mesh pp=2
micro-batches 2
weight w0 f32[8,8]
weight w1 f32[8,8]
weight w2 f32[8,8]
weight w3 f32[8,8]
input x f32[4,8]
segment c0 forward stage 0 (x) -> (a)
  a = linear(x, w0)
  send a to 1
segment c1 forward stage 1 () -> (b)
  recv a: f32[4,8] from 0
  b = linear(a, w1)
  send b to 0
segment c2 forward stage 2 () -> (c)
  recv b: f32[4,8] from 1
  c = linear(b, w2)
  send c to 1
segment c3 forward stage 3 () -> (d)
  recv c: f32[4,8] from 0
  d = linear(c, w3)
program pp=0
  run c0 micro-batch 0-1
- run c2 micro-batch 1
- run c2 micro-batch 0
+ run c2 micro-batch 0
+ run c2 micro-batch 1
program pp=1
  run c1 micro-batch 0-1
  run c3 micro-batch 0-1
""",
    ),
    *pair(
        "chunks of a virtual pipeline swapped",
        "mismatched-message misordered-message use-before-definition send-recv-deadlock schedule-out-of-order",
        """
mesh pp=2
weight w0 f32[8,8]
weight w1 f32[8,8]
weight w2 f32[8,8]
weight w3 f32[8,8]
input x f32[4,8]
segment c0 forward stage 0 (x) -> (a)
  a = linear(x, w0)
  send a to 1
segment c1 forward stage 1 () -> (b)
  recv a: f32[4,8] from 0
  b = linear(a, w1)
  send b to 0
segment c2 forward stage 2 () -> (c)
  recv b: f32[4,8] from 1
  c = linear(b, w2)
  send c to 1
segment c3 forward stage 3 () -> (d)
  recv c: f32[4,8] from 0
  d = linear(c, w3)
program pp=0
  run c0 micro-batch 0
  run c2 micro-batch 0
program pp=1
- run c3 micro-batch 0
- run c1 micro-batch 0
+ run c1 micro-batch 0
+ run c3 micro-batch 0
""",
    ),
    *pair(
        "two tensors of one layer swapped in a pipeline's receive",
        "mismatched-message misordered-message",
        """
mesh pp=2 tp=2
weight w f32[8,8]
input x f32[4,8]
program pp=0
  h = linear(x, w)
  send h to pp+1
  send x to pp+1
program pp=1
- recv x2: f32[4,8] from pp-1
- recv h: f32[4,8] from pp-1
- y = add(h, x2)
+ recv h: f32[4,8] from pp-1
+ recv x2: f32[4,8] from pp-1
+ y = add(h, x2)
""",
    ),
    *pair(
        "one micro-batch fewer on the second pipeline stage",
        "unmatched-send",
        """
mesh pp=2
micro-batches 3
weight w f32[8,8]
weight u f32[8,8]
input x f32[4,8]
segment f0 forward stage 0 (x) -> (h)
  h = linear(x, w)
  send h to pp+1
segment f1 forward stage 1 () -> (y)
  recv h: f32[4,8] from pp-1
  y = linear(h, u)
program pp=0
  run f0 micro-batch 0-2
program pp=1
- run f1 micro-batch 0-1
+ run f1 micro-batch 0-2
""",
    ),
    *pair(
        "handle of the other micro-batch",
        "missing-wait unknown-handle handle-never-waited",
        """
mesh pp=2
micro-batches 2
weight w f32[8,8]
input x f32[4,8]
segment f0 forward stage 0 (x) -> ()
  send x to pp+1
segment prefetch forward stage 1 () -> (h)
  recv h: f32[4,8] from pp-1 async r
segment f1 forward stage 1 (h) -> (y)
+ wait r
  y = linear(h, w)
segment finish forward stage 1
  wait r
program pp=0
  run f0 micro-batch 0-1
program pp=1
  run prefetch micro-batch 0
  run prefetch micro-batch 1
  run f1 micro-batch 0
  run f1 micro-batch 1
- run finish micro-batch 0
- run finish micro-batch 1
""",
    ),
    *pair(
        "in-place activation of a tensor that is being gathered",
        "buffer-in-flight",
        """
mesh tp=2
weight w f32[8,8] tp:S(0)
input x f32[4,8]
program
  h = linear(x, w)
  g = all-gather(h, dim=1) over tp async ag
- relu_(h!)
  wait ag
+ relu_(h!)
""",
    ),
    *pair(
        "reduce-scatter into a storage that is still read",
        "buffer-in-flight",
        """
mesh tp=2
input a f32[8,8] tp:P
tensor s f32[4,8] storage pool
tensor t f32[4,8] storage pool
tensor u f32[4,8] storage other
program
  s = reduce-scatter(a, dim=0) over tp
  g = all-gather(s, dim=0) over tp async ag
- t = reduce-scatter(a, dim=0) over tp
+ u = reduce-scatter(a, dim=0) over tp
  wait ag
""",
    ),
    *pair(
        "use before the receive",
        "use-before-definition",
        """
mesh pp=2
weight w f32[8,8]
input x f32[4,8]
program pp=0
  send x to pp+1
program pp=1
- y = linear(h, w)
  recv h: f32[4,8] from pp-1
+ y = linear(h, w)
""",
    ),
    *pair(
        "received with the dtype of nobody's value",
        "mismatched-message",
        """
mesh pp=2
weight w bf16[4,6]
input x bf16[8,6]
program pp=0
  h = linear(x, w)
  send h to pp+1
program pp=1
- recv h: f16[8,4] from pp-1
+ recv h: bf16[8,4] from pp-1
  y = relu(h)
""",
    ),
    *pair(
        "received with another size in a segment",
        "mismatched-message",
        """
mesh pp=2
micro-batches 2
weight w f32[4,6]
input x f32[8,6]
segment first forward stage 0 (x) -> ()
  h = linear(x, w)
  send h to pp+1
segment second forward stage 1 () -> (y)
- recv h: f32[4,4] from pp-1
+ recv h: f32[8,4] from pp-1
  y = relu(h)
program pp=0
  run first micro-batch 0-1
program pp=1
  run second micro-batch 0-1
""",
    ),
)
