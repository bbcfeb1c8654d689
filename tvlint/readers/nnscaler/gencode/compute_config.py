"""nnScaler's `compute_config.pt`: a torch zip whose pickle names no classes."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

from tvlint.ir.location import Location
from tvlint.readers.document import ReadError
from tvlint.readers.sources.inert_pickle import load

LARGEST = 1 << 20


def read_compute_config(path: str, data: bytes) -> Mapping[str, Any]:
    """Return the settings in the file. Raises ReadError for anything that is not such a file."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [entry for entry in archive.infolist() if entry.filename.endswith("/data.pkl")]
            if len(members) != 1 or members[0].file_size > LARGEST:
                raise ReadError("not a configuration saved by torch: no small `data.pkl` inside", Location(path))
            with archive.open(members[0]) as stream:
                content = stream.read(LARGEST + 1)
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, NotImplementedError, EOFError, RuntimeError) as error:
        raise ReadError(f"not a zip file: {' '.join(str(error).split())[:200]}", Location(path)) from None
    loaded = load(content, path)
    if loaded.names or not isinstance(loaded.root, dict):
        raise ReadError("not a plain dictionary of settings", Location(path))
    return {str(key): value for key, value in loaded.root.items() if isinstance(key, str)}


def whole_number(config: Mapping[str, Any], name: str) -> int | None:
    """Return a positive number of the configuration; None where it has none."""
    value = config.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
