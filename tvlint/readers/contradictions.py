"""Training arguments of transformers that it refuses beside one another, on a command line or in YAML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tvlint.findings import Finding, Related, Severity
from tvlint.ir.configuration import Setting

RULE = "contradictory-arguments"
ON = frozenset({"true", "1", "yes", "y", "t"})
PRECISIONS = (("fp16", "bf16"), ("fp16_full_eval", "bf16_full_eval"))
STEPS = "steps"
MOST_STEPS = 10**12


def contradictions(settings: Mapping[str, Setting]) -> Iterator[Finding]:
    """Yield a finding for each pair of the settings that transformers/training_args.py: __post_init__ refuses."""
    for one, other in PRECISIONS:
        if _is_on(settings.get(one)) and _is_on(settings.get(other)):
            yield _finding(settings[one], settings[other], "exclude one another", "keep one of the two")
    evaluated = settings.get("eval_strategy") or settings.get("evaluation_strategy")
    saved = settings.get("save_strategy")
    if not _is_on(settings.get("load_best_model_at_end")) or evaluated is None or saved is None:
        return
    if not isinstance(evaluated.value, str) or not isinstance(saved.value, str) or saved.value == "best":
        return
    if evaluated.value != saved.value:
        why = "differ, and `load_best_model_at_end` needs them to be the same"
        yield _finding(evaluated, saved, why, "save as often as you evaluate")
    evaluations, saves = (_steps(settings.get(name)) for name in ("eval_steps", "save_steps"))
    if evaluated.value == STEPS and evaluations and saves and saves % evaluations:
        why = "do not fit: `load_best_model_at_end` needs a checkpoint at an evaluation"
        help = f"save every {evaluations * max(1, saves // evaluations)} steps"
        yield _finding(settings["eval_steps"], settings["save_steps"], why, help)


def _steps(setting: Setting | None) -> int:
    """Return a number of steps; 0 where none is given, or a share of all."""
    value = setting.value if setting is not None else 0
    return int(value) if isinstance(value, int | float) and 1 <= value < MOST_STEPS and value == int(value) else 0


def _is_on(setting: Setting | None) -> bool:
    """Return whether a switch is surely on; one without a word after it is."""
    if setting is None:
        return False
    words = setting.value if isinstance(setting.value, tuple) else (setting.value,)
    return len(words) < 2 and all(word is True or (isinstance(word, str) and word.lower() in ON) for word in words)


def _finding(one: Setting, other: Setting, why: str, help: str) -> Finding:
    one, other = sorted((one, other), key=lambda each: (each.name_location.line or 0, each.name_location.column or 0))
    message = f"`{one.written}` and `{other.written}` {why}"
    related = (Related(f"`{one.written}`", one.name_location),)
    return Finding(RULE, Severity.ERROR, message, other.name_location, help, related)
