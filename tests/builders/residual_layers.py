"""Layers with residuals, cut along `tp` as Megatron cuts them: whole activations, and one sum on the way forth and back."""

from __future__ import annotations


def residual_layers(size: int, parallel: bool, unsummed: int = -1) -> str:
    """Return a plan of so many layers, or its reference; in layer `unsummed` nothing sums what goes further back."""
    forth, back = "", ""
    for layer in range(size):
        summed = f"  p{layer} = linear(u{layer}, b{layer})\n  y{layer} = all-reduce(p{layer}) over tp\n"
        forth += f"  h{layer} = linear(x{layer}, a{layer})\n  u{layer} = gelu(h{layer})\n"
        forth += summed if parallel else f"  y{layer} = linear(u{layer}, b{layer})\n"
        forth += f"  x{layer + 1} = add(x{layer}, y{layer})\n"
        given, made = ("p", f"c{layer}" if layer != unsummed else f"e{layer}") if parallel else ("y", f"e{layer}")
        lines = [
            f"r{layer}, dy{layer} = backward x{layer + 1} (d{layer + 1})",
            f"du{layer}, grad(b{layer}) = backward {given}{layer} (dy{layer})",
            f"dh{layer} = backward u{layer} (du{layer})",
            f"e{layer}, grad(a{layer}) = backward h{layer} (dh{layer})",
            *([f"c{layer} = all-reduce(e{layer}) over tp"] if parallel and layer != unsummed else []),
            f"d{layer} = add(r{layer}, {made})",
        ]
        back = "".join(f"  {line}\n" for line in lines) + back
    one, two = (" tp:S(0)", " tp:S(1)") if parallel else ("", "")
    weights = "".join(f"weight a{layer} f32[8,4]{one}\nweight b{layer} f32[4,8]{two}\n" for layer in range(size))
    ends = f"  l = sum(x{size})\n  d{size} = backward l (grad(l))\n"
    return ("mesh tp=2\n" if parallel else "") + f"{weights}input x0 f32[8,4]\nloss l\nprogram\n{forth}{ends}{back}"
