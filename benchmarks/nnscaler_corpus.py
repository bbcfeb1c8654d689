"""Keep folders and plans that nnScaler wrote of our models for `fixtures/nnscaler`: what tvlint reads, and no code of others.

    python benchmarks/nnscaler_corpus.py GENERATED fixtures/nnscaler

GENERATED is the folder of `benchmarks/nnscaler_examples.py generate`. A traced graph keeps its data, and loses the functions of
nnScaler that dill wrote with it. The branch of nnScaler that exports plans adds `mgener.pkl`, which becomes a plan.
"""

from __future__ import annotations

import lzma
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "tests")]

from tests.builders.nnscaler_pickles import Called, Global, Object, dumps  # noqa: E402
from tvlint.readers.sources.inert_objects import Opaque, Record, Sealed, global_name  # noqa: E402
from tvlint.readers.sources.inert_pickle import load  # noqa: E402

_DEEPEST = 1_000_000
_STACK = 512 << 20


class _Data:
    """The data of one pickle; what is no data is None."""

    def __init__(self) -> None:
        self.known: dict[int, Any] = {}
        self.kept: list[object] = []

    def of(self, value: object) -> Any:
        if isinstance(value, Sealed):
            return Global(global_name(value))
        if value is None or isinstance(value, (bool, int, float, str, bytes)):
            return value
        if id(value) not in self.known:
            self.kept.append(value)
            self.known[id(value)] = self.known.get(id(value)) or self._anew(value)
        return self.known[id(value)]

    def _anew(self, value: object) -> Any:
        if isinstance(value, Record):
            self.known[id(value)] = made = Object(global_name(value))
            made.state = {name: self.of(own) for name, own in value.__dict__.items()}
            return made
        if isinstance(value, Opaque):
            given = getattr(value, "tv_args", ())
            return Called("builtins.slice", tuple(map(self.of, given))) if global_name(value) == "builtins.slice" else None
        if isinstance(value, dict):
            self.known[id(value)] = table = {}
            table.update((key, self.of(own)) for key, own in value.items() if isinstance(key, (str, int)))
            return table
        if isinstance(value, list):
            self.known[id(value)] = items = []
            items.extend(map(self.of, value))
            return items
        if isinstance(value, (tuple, set, frozenset)):
            return tuple(map(self.of, value))
        raise TypeError(type(value))


def data_of(pickled: bytes) -> bytes:
    """Return a pickle with the data of a pickle of nnScaler alone."""
    return dumps(_Data().of(load(pickled, "graph.ckp", ("nnscaler.",)).root))


def keep(generated: Path, out: Path) -> None:
    """Write what is kept of all folders in `generated`."""
    (out / "plans").mkdir(parents=True, exist_ok=True)
    for folder in sorted(path for path in generated.iterdir() if path.is_dir()):
        exported = folder / "mgener.pkl"
        if exported.is_file():
            packed = lzma.compress(exported.read_bytes(), preset=9 | lzma.PRESET_EXTREME)
            (out / "plans" / f"{folder.name}.pkl.xz").write_bytes(packed)
            continue
        target = out / "folders" / folder.name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for path in (*folder.glob("gencode*.py"), folder / "compute_config.pt"):
            shutil.copyfile(path, target / path.name)
        graph = data_of((folder / "graph.ckp").read_bytes())
        (target / "graph.ckp").write_bytes(lzma.compress(graph, preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    sys.setrecursionlimit(_DEEPEST)
    threading.stack_size(_STACK)
    worker = threading.Thread(target=keep, args=tuple(map(Path, sys.argv[1:3])))
    worker.start()
    worker.join()
