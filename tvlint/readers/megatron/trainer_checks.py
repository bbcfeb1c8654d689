"""Whether a trainer of verl that lies in the checkout still checks what that of its releases checks."""

from __future__ import annotations

import os

from tvlint.checkout.opening import kept
from tvlint.checkout.top import folder_around
from tvlint.frameworks.verl import TRAINER
from tvlint.ir.patterns import Pattern
from tvlint.readers.megatron.parser_source import LARGEST, source_of_program
from tvlint.readers.sources.sibling_files import content_within

CHECK = Pattern(rb"(?m)^[^#\n]*\btrain_batch_size\s*(?:>=|<)\s*[\w.]*ppo_mini_batch_size")
CHECKED_IN = (("trainer", "ppo", "ray_trainer.py"), ("utils", "config.py"), ("workers", "config", "actor.py"))
"""Where the releases compare a mini-batch with the batch (v0.2 to v0.7)."""


def counts_otherwise(script: str) -> bool:
    """Return whether the checkout has a trainer that takes mini-batches beyond the batch, as those of agents do, which count
    steps of a conversation.
    """
    program = source_of_program(TRAINER, script)
    return bool(program) and not _has_check(os.path.dirname(os.path.dirname(program)), folder_around(script))


@kept
def _has_check(package: str, checkout: str) -> bool:
    paths = (os.path.join(package, *parts) for parts in CHECKED_IN)
    contents = (content_within(checkout, path, path, LARGEST) for path in paths)
    return any(found is not None and CHECK.search(found[1]) for found in contents)
