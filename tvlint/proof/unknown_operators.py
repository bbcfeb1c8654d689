"""What is said of an operator that the table does not have."""

from __future__ import annotations

import re

from tvlint.ir.operators import Compute

_TO_EXPERTS = re.compile(
    r"(?i)moe|expert|(un)?permute_tokens?|token_(un)?permut|grouped_?(gemm|mm|linear)|\bgmm|dropless|ragged"
)
"""Names of operators that move a number of tokens to each expert, or work on them, that only the run knows."""

_FOR_EXPERTS = (
    "; how many tokens an expert gets is known only as it runs: a plan that drops none can be written with `moe_dispatch` and "
    "`moe_combine`, with room for all tokens of a group (`capacity`)"
)


def how_to_declare(operator: Compute) -> str:
    """The lines to add to the configuration for an operator of the project's own code; nothing for a framework's."""
    module, _, name = operator.op.rpartition(".")
    if module.split(".")[0] in ("torch", "nnscaler", "_operator", "builtins"):
        return ""
    hint = _FOR_EXPERTS if _TO_EXPERTS.search(name) else ""
    if not module:
        return hint
    annotation = operator.annotation or "..."
    return f"{hint}; if it is your own, declare it: `[[operator]]` `name = {operator.op!r}` `annotation = {annotation!r}`"
