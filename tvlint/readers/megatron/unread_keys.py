"""Keys of a configuration of verl that lies in the package of its program, which nothing in that package reads."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

from tvlint.checkout.opening import is_file, kept, names_ending
from tvlint.checkout.top import folder_around
from tvlint.findings import Edit, Finding, Fix, Severity
from tvlint.ir.patterns import Pattern
from tvlint.near_names import has_same_words, is_a_slip
from tvlint.readers.sources.sibling_files import content_within
from tvlint.readers.sources.yaml_nodes import Visits, YamlMapping, YamlNode, YamlScalar, mappings

NAMED = Pattern(rb"[A-Za-z_]\w*")
READ = Pattern(rb"[.\"']([A-Za-z_]\w{3,60})\b")
"""How Python reads a setting: as an attribute, or by its name in quotes."""
LARGEST = 1 << 20
MOST_FILES = 1_500
MOST_FOLDERS = 1_000
MOST_UNREAD = 40
"""With more keys that nothing reads, a file is handed to another program."""
SHORTEST = 4


def unread_keys(path: str, root: YamlNode, visits: Visits) -> Iterator[Finding]:
    """Yield a warning for each key that is no name in the package around the file, and a slip away from one that it reads."""
    package = _package_around(path)
    if not package or not isinstance(root, YamlMapping):
        return
    keys = [
        (key, mapping) for _, mapping in mappings(root, visits) for key, _ in mapping.entries if isinstance(key, YamlScalar)
    ]
    named, read = _words(package, folder_around(path))
    count = Counter(key.text for key, _ in keys)
    unread = [(key, mapping) for key, mapping in keys if key.text.isidentifier() and key.text.encode() not in named]
    for key, mapping in unread if len(unread) <= MOST_UNREAD and named else ():
        siblings = {each.text for each, _ in mapping.entries if isinstance(each, YamlScalar)}
        near = [word for word in read if abs(len(word) - len(key.text)) <= 1 and _is_meant(key.text, word)]
        meant = [word for word in near if word not in siblings]
        if len(key.text) > SHORTEST and len(meant) == 1 and count[key.text] == 1:
            message = f"nothing in `{os.path.basename(package)}` reads `{key.text[:80]}`"
            fix = Fix(f"write `{meant[0]}`", (Edit(key.location, meant[0]),))
            help = f"did you mean `{meant[0]}`?"
            yield Finding("misspelled-option", Severity.WARNING, message, key.location, help, fixes=(fix,))


def _is_meant(key: str, word: str) -> bool:
    return len(word) >= SHORTEST and (is_a_slip(key, word) or has_same_words(key, word))


def _package_around(path: str) -> str:
    """Return the topmost package of Python that a file lies in; empty where it lies in none."""
    folder, found = os.path.dirname(os.path.abspath(path)), ""
    top = folder_around(path)
    while folder.startswith(top) and folder != top:
        if is_file(os.path.join(folder, "__init__.py")):
            found = folder
        elif found:
            break
        folder = os.path.dirname(folder)
    return found


@kept
def _words(package: str, checkout: str) -> tuple[frozenset[bytes], frozenset[str]]:
    """Return all names in the Python of a package, and those by which it may read settings; none where it is too large."""
    named: set[bytes] = set()
    read: set[bytes] = set()
    folders, files = [package], 0
    for folder in folders:
        names = names_ending(folder, "")
        folders += (os.path.join(folder, name) for name in names if "." not in name and not name.startswith("_"))
        for name in names:
            found = content_within(checkout, os.path.join(folder, name), package, LARGEST) if name.endswith(".py") else None
            named.update(NAMED.findall(found[1]) if found is not None else ())
            read.update(READ.findall(found[1]) if found is not None else ())
            files += found is not None
        if files > MOST_FILES or len(folders) > MOST_FOLDERS:
            return frozenset(), frozenset()
    return frozenset(named), frozenset(word.decode() for word in read)
