"""What bounds the work of readers."""

from __future__ import annotations

import gc

from tvlint.readers.sources.resource_limits import without_collection


def test_what_was_made_without_collection_is_not_walked_afterwards() -> None:
    walked = list[str]()
    gc.callbacks.append(lambda phase, info: walked.append(phase))
    try:
        with without_collection():
            made = [[number] for number in range(10_000)]
        after = [[number] for number in range(100)]
    finally:
        gc.callbacks.pop()
        gc.unfreeze()
    assert (len(made), len(after), walked) == (10_000, 100, [])
