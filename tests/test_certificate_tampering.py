"""A certificate that was edited anywhere is rejected, by its digest, and by the checker where the digest was mended too."""

from __future__ import annotations

import copy
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.generate import Pair, Way, pair

from tests.certificates import certified, objection, objection_to_bytes
from tvlint.certificate.form import Certificate, CertificateError, from_bytes, to_bytes

MADE = {
    "tensor and data parallel": pair("mlp", Way(dp=2, tp=2, nm=2), seed=1),
    "pipeline parallel": pair("mlp", Way(pp=2, tp=2, nm=2, pieces=True), seed=2),
}


@cache
def written(name: str) -> bytes:
    own = certified(MADE[name].parallel, MADE[name].reference)
    assert own is not None
    return to_bytes([own])


def payload(data: bytes) -> Any:
    return json.loads(zlib.decompress(data.partition(b"\n")[2], 31))


def packed(content: Any) -> bytes:
    return packed_text(json.dumps(content, separators=(",", ":")))


def packed_text(text: str) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    body = packer.compress(text.encode()) + packer.flush()
    return f"tvlint certificate 1 sha256:{hashlib.sha256(body).hexdigest()}\n".encode() + body


def edits(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[str, tuple[Any, ...], Any]]:
    """Every single edit of a JSON value: what, where, and the value instead."""
    if isinstance(value, bool):
        yield "flip", path, not value
    elif isinstance(value, int):
        yield "add one", path, value + 1
        yield "take one", path, value - 1
        yield "make zero", path, 0
        yield "make huge", path, 1 << 61
    elif isinstance(value, str):
        yield "change text", path, value + "x"
        yield "empty text", path, ""
    elif isinstance(value, dict):
        for key, item in value.items():
            yield "drop key", path, {other: own for other, own in value.items() if other != key}
            yield from edits(item, (*path, key))
    elif isinstance(value, list):
        yield "add entry", path, [*value, value[-1] if value else 0]
        for i, item in enumerate(value):
            yield "drop", path, [*value[:i], *value[i + 1 :]]
            if i + 1 < len(value):
                yield "swap", path, [*value[:i], value[i + 1], item, *value[i + 2 :]]
            yield from edits(item, (*path, i))
    if value is not None:
        yield "make null", path, None


def edited(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = copy.copy(content)
    changed[path[0]] = edited(content[path[0]], path[1:], value)
    return changed


def without_names(own: Certificate) -> tuple[Any, ...]:
    """What the checker goes by: all but the digests of the files, which `verify` compares."""
    return own.assume, own.assumptions, own.terms, own.paths, own.relations, own.trails, own.reference, own.parallel


def says_the_same(data: bytes, other: bytes) -> bool:
    try:
        one, two = from_bytes(data), from_bytes(other)
    except CertificateError:
        return False
    return list(map(without_names, one)) == list(map(without_names, two))


@pytest.mark.parametrize("name", MADE)
def test_every_kind_of_edit_is_rejected_though_its_digest_was_mended(name: str) -> None:
    data, made = written(name), MADE[name]
    content = payload(data)
    assert objection_to_bytes(packed(content), made.parallel, made.reference) == ""
    kinds: dict[tuple[Any, ...], int] = {}
    tried = 0
    for what, path, value in edits(content):
        kind = (what, *(key for key in path if isinstance(key, str)), len(path))
        kinds[kind] = kinds.get(kind, 0) + 1
        if kinds[kind] % 41 != 1:
            continue
        changed = packed(edited(content, path, value))
        if says_the_same(changed, data):
            continue
        tried += 1
        assert objection_to_bytes(changed, made.parallel, made.reference), (what, path, value)
    assert tried > 100


@pytest.mark.parametrize("name", MADE)
def test_every_byte_counts(name: str) -> None:
    data, made = written(name), MADE[name]
    assert objection_to_bytes(data, made.parallel, made.reference) == ""
    for i in range(len(data)):
        assert objection_to_bytes(data[:i] + bytes([data[i] ^ (1 << i % 8)]) + data[i + 1 :], made.parallel, made.reference)
    for changed in (data[:-1], data + b"\0", data + data, b"", data[: len(data) // 2]):
        assert objection_to_bytes(changed, made.parallel, made.reference)


def test_a_certificate_is_of_one_pair() -> None:
    ways = [Way(tp=2), Way(dp=2), Way(tp=2, dp=2), Way(pp=2, nm=2)]
    pairs: list[Pair] = [pair("mlp", way, seed=5) for way in ways]
    for made in pairs:
        own = certified(made.parallel, made.reference)
        assert own is not None
        for other in pairs:
            assert (objection(own, other.parallel, other.reference) == "") == (other is made)


def test_one_bomb_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvlint.certificate.form.LARGEST", 1 << 20)
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    body = packer.compress(b"[" * (1 << 22)) + packer.flush()
    data = f"tvlint certificate 1 sha256:{hashlib.sha256(body).hexdigest()}\n".encode() + body
    with pytest.raises(CertificateError, match="more than 1 MiB"):
        from_bytes(data)


def test_deep_nesting_is_rejected() -> None:
    for text in (b"[" * 200_000 + b"]" * 200_000, b'{"a":' * 100_000 + b"1" + b"}" * 100_000):
        packer = zlib.compressobj(1, zlib.DEFLATED, 31)
        body = packer.compress(text) + packer.flush()
        with pytest.raises(CertificateError):
            from_bytes(f"tvlint certificate 1 sha256:{hashlib.sha256(body).hexdigest()}\n".encode() + body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=120, deadline=None)
@given(JSON)
def test_any_json_is_refused_in_words(content: Any) -> None:
    with pytest.raises(CertificateError):
        from_bytes(packed(content))


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_any_content_in_any_place_is_rejected_in_words(data: st.DataObject) -> None:
    made = MADE["tensor and data parallel"]
    original = written("tensor and data parallel")
    content = payload(original)
    path: list[Any] = [0]
    here = content[0]
    while isinstance(here, list | dict) and here and (len(path) == 1 or data.draw(st.booleans())):
        keys = list(here) if isinstance(here, dict) else range(len(here))
        path.append(data.draw(st.sampled_from(keys)))
        here = here[path[-1]]
    changed = packed(edited(content, tuple(path), data.draw(JSON | st.integers(-2, 40))))
    found = objection_to_bytes(changed, made.parallel, made.reference)
    assert found or says_the_same(changed, original)


@pytest.mark.parametrize(
    "changed",
    [
        lambda text: f"{text} ",
        lambda text: f"\ufeff{text}",
        lambda text: text.replace(",", ", ", 1),
        lambda text: text.replace('"variant":0', '"variant":1,"variant":0'),
        lambda text: text.replace('"variant":0', '"variant":-0'),
        lambda text: text.replace('"real arithmetic', '"\\u0072eal arithmetic'),
        lambda text: text.replace('"real arithmetic', '"\\u001b[31mreal arithmetic'),
        lambda text: text.replace('"real arithmetic', '"\\ud800real arithmetic'),
        lambda text: text.replace('"variant":0', f'"variant":{"9" * 5000}'),
        lambda text: text.replace('"terms":[[[', '"terms":[[[NaN,'),
        lambda text: text.replace('"terms":[[[', f'"terms":[[[{"[" * 5000}{"]" * 5000},'),
    ],
)
def test_what_is_not_written_as_certificates_are_is_rejected(changed: Callable[[str], str]) -> None:
    made, text = MADE["pipeline parallel"], json.dumps(payload(written("pipeline parallel")), separators=(",", ":"))
    assert objection_to_bytes(packed_text(text), made.parallel, made.reference) == ""
    assert changed(text) != text
    assert objection_to_bytes(packed_text(changed(text)), made.parallel, made.reference)
