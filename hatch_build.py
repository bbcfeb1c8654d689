"""Put the front matter of all rule pages into one file of the wheel, which tvlint reads in their place."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledPages(BuildHookInterface):  # type: ignore[type-arg,misc]
    """Write the compiled pages where a wheel is built; an editable installation reads the pages themselves."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from tvlint.rulebook.pages import COMPILED, read_rules, to_data

        compiled = Path(self.directory, COMPILED)
        compiled.parent.mkdir(parents=True, exist_ok=True)
        compiled.write_text(to_data(read_rules(Path(self.root, "rules"))), encoding="utf-8")
        build_data["force_include"][str(compiled)] = f"tvlint/_data/rules/{COMPILED}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        Path(self.directory, "rules.json").unlink(missing_ok=True)
