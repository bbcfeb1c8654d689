"""Compressed inputs, recognised by their first bytes and unpacked within bounds."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable, Iterator
from io import BytesIO

from tvlint.ir.location import Location
from tvlint.readers.document import ReadError

LIMIT = 4 << 30
"""The most bytes that any input unpacks to."""

_FREE = 64 << 20
_RATIO = 200
_CHUNK = 256 << 10
_XZ_MEMORY = 256 << 20
_ZSTD_WINDOW = 256 << 20
_PIECE = 256

_XZ = b"\xfd7zXZ\x00"
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


def decompress(data: bytes, path: str, limit: int = LIMIT) -> bytes:
    """Return the content of `data`: unpacked when it is xz, gzip or zstd by its first bytes, as it is otherwise.

    Output is bounded by `limit` and by 200 times the input (64 MiB are always allowed), so that a small file cannot fill
    the memory. Raises `ReadError` for truncated, corrupt and oversized input.
    """
    unpack = _unpacker(data)
    if unpack is None:
        return data
    name, chunks = unpack
    bound = min(limit, max(_FREE, _RATIO * len(data)))
    unpacked = BytesIO()
    try:
        for piece in chunks(data):
            if unpacked.tell() + len(piece) > bound:
                raise ReadError(
                    f"{name} data of {len(data)} bytes unpacks to more than {bound} bytes",
                    Location(path),
                    "unpack the file yourself if its content is really this large",
                )
            unpacked.write(piece)
    except _Truncated:
        raise ReadError(f"{name} data ends before it is complete", Location(path), "copy or download the file again") from None
    except (lzma.LZMAError, zlib.error, EOFError, _ZstdError) as error:
        raise ReadError(
            f"{name} data is corrupt: {error}".rstrip("."), Location(path), "copy or download the file again"
        ) from None
    except MemoryError:
        raise ReadError(f"{name} data of {len(data)} bytes does not fit in memory", Location(path)) from None
    return unpacked.getvalue()


class _Truncated(Exception):
    """The data end inside a stream."""


class _ZstdError(Exception):
    """The zstd library refuses the data."""


def _unpacker(data: bytes) -> tuple[str, Callable[[bytes], Iterator[bytes]]] | None:
    if data.startswith(_XZ):
        return "xz", _xz
    if data.startswith(_GZIP):
        return "gzip", _gzip
    if data.startswith(_ZSTD):
        return "zstd", _zstd
    return None


def _xz(data: bytes) -> Iterator[bytes]:
    pieces = _pieces(data)
    pending = next(pieces, b"")
    while pending:
        stream = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
        yield stream.decompress(pending, _CHUNK)
        while not stream.eof:
            pending = next(pieces, b"") if stream.needs_input else b""
            if stream.needs_input and not pending:
                raise _Truncated
            yield stream.decompress(pending, _CHUNK)
        pending = _behind(stream.unused_data, pieces)


def _gzip(data: bytes) -> Iterator[bytes]:
    pieces = _pieces(data)
    pending = next(pieces, b"")
    while pending:
        stream = zlib.decompressobj(31)
        yield stream.decompress(pending, _CHUNK)
        while not stream.eof:
            pending = stream.unconsumed_tail or next(pieces, b"")
            piece = stream.decompress(pending, _CHUNK)
            if not (pending or piece or stream.eof):
                raise _Truncated
            yield piece
        pending = _behind(stream.unused_data, pieces)


def _pieces(data: bytes) -> Iterator[bytes]:
    """Yield the data in pieces so small that what a stream leaves of one is copied in no time, however many streams follow."""
    return (data[start : start + _PIECE] for start in range(0, len(data), _PIECE))


def _behind(rest: bytes, pieces: Iterator[bytes]) -> bytes:
    """Return what follows a stream and its padding."""
    while not (pending := rest.lstrip(b"\x00")):
        rest = next(pieces, b"")
        if not rest:
            return b""
    return pending


def _zstd(data: bytes) -> Iterator[bytes]:
    import zstandard

    view = memoryview(data)
    context = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    stream = context.decompressobj()
    start = 0
    try:
        while start < len(data):
            piece = view[start : start + _PIECE]
            start += len(piece)
            yield stream.decompress(piece)
            while stream.eof:
                rest = stream.unused_data
                if not rest and start >= len(data):
                    return
                stream = context.decompressobj()
                yield stream.decompress(rest)
                if not rest:
                    break
    except zstandard.ZstdError as error:
        raise _ZstdError(str(error)) from None
    raise _Truncated
