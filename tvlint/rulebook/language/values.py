"""Look up names of the expression language in one configuration."""

from __future__ import annotations

from collections.abc import Mapping

from tvlint.frameworks.defaults import ABSENT, KEPT
from tvlint.frameworks.kin import CORE, has_default_of_megatron, lineage, own_defaults, parses_like_megatron
from tvlint.frameworks.usual import USUAL
from tvlint.ir.configuration import Configuration, Setting, SettingValue, Unknown
from tvlint.rulebook.language.derived import (
    DERIVED,
    GRID_FROM_CHECKPOINT,
    KEPT_FROM_CHECKPOINT,
    SIZES_OF_MODEL,
    TAKEN_FROM_CHECKPOINT,
)
from tvlint.rulebook.language.evaluation import Result, evaluate_expression
from tvlint.rulebook.language.expression import Expression, parse

ENVIRONMENT = "env."
GPUS = "gpus"
"""The name of the generation of the GPUs; an empty text where that is not known."""


class Values:
    """The settings of one configuration with their defaults and what follows from them, each computed once."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self._known: dict[str, Result] = {}
        self.published = _published(configuration) if configuration.model else {}
        self._kept: frozenset[str] = frozenset()
        self._taken: frozenset[str] = frozenset()
        self._origin = "comes from the checkpoint"
        if not parses_like_megatron(configuration.framework):
            return
        uses_checkpoint = self.value("use_checkpoint_args")
        is_launch = configuration.location is not None
        is_described_elsewhere = uses_checkpoint is False and is_launch and SIZES_OF_MODEL.isdisjoint(configuration.settings)
        if is_described_elsewhere:
            self._origin = "belongs to a model that is described elsewhere"
        if is_described_elsewhere or uses_checkpoint is not False:
            self._kept, self._taken = KEPT_FROM_CHECKPOINT, TAKEN_FROM_CHECKPOINT
            if self.value("use_mp_args_from_checkpoint_args") is True:
                self._taken |= GRID_FROM_CHECKPOINT

    @property
    def kind(self) -> tuple[object, ...]:
        """Return everything of the configuration, beside the settings that it gives, that a value depends on."""
        configuration = self.configuration
        return (
            configuration.framework,
            configuration.version,
            configuration.complete,
            configuration.command_complete,
            configuration.supposed,
            configuration.gpus,
            configuration.model if self.published else "",
            self._kept,
            self._taken,
        )

    def evaluate(self, expression: Expression) -> Result:
        """Return the value of `expression` here."""
        return evaluate_expression(expression, self.value, self.is_set)

    def setting(self, name: str) -> Setting | None:
        """Return what the file itself says under `name`."""
        if name.startswith(ENVIRONMENT):
            return self.configuration.environment.get(name[len(ENVIRONMENT) :])
        return self.configuration.settings.get(name)

    def value(self, name: str) -> Result:
        """Return the value of a setting, a derived value or an environment variable."""
        if name not in self._known:
            self._known[name] = Unknown(f"`{name}` depends on itself")
            self._known[name] = self._find(name)
        return self._known[name]

    def is_set(self, name: str) -> Result:
        """Return whether the file gives `name` a value."""
        setting = self.setting(name)
        if setting is not None:
            value = setting.value
            if not isinstance(value, Unknown):
                return value is not None
            return value.given or Unknown(f"`{name}`: {value.reason}")
        if name in self.published:
            return self.published[name] is not None
        if name.startswith(ENVIRONMENT):
            return Unknown(f"`{name}` may be set outside the file")
        if name in self._taken or name in self._kept:
            return Unknown(f"`{name}` {self._origin}")
        if not self._is_complete(name):
            return Unknown(f"`{name}` may be set elsewhere")
        framework = self.configuration.framework
        is_its_own = name in own_defaults(framework)
        return Unknown(f"the default of `{name}` in {framework} is not known") if is_its_own else False

    def _is_complete(self, name: str) -> bool:
        """Return whether the setting has its default where the file does not give it."""
        return self.configuration.complete or (self.configuration.supposed and name not in USUAL)

    def _find(self, name: str) -> Result:
        if name in self._taken:
            return Unknown(f"`{name}` {self._origin}")
        setting = self.setting(name)
        if setting is not None:
            value = setting.value
            return Unknown(f"`{name}`: {value.reason}") if isinstance(value, Unknown) else value
        if name in self.published:
            return self.published[name]
        if name.startswith(ENVIRONMENT):
            return Unknown(f"`{name}` may be set outside the file")
        if name == GPUS:
            return self.configuration.gpus
        if name in DERIVED:
            return self.evaluate(parse(DERIVED[name]))
        if self.configuration.framework in ABSENT and name in ABSENT[self.configuration.framework]:
            return ABSENT[self.configuration.framework][name]
        if self.configuration.command_complete and name in (kept := KEPT.get(self.configuration.framework, {})):
            return kept[name]
        if not self._is_complete(name):
            return Unknown(f"`{name}` may be set elsewhere")
        if name in self._kept:
            return Unknown(f"`{name}` {self._origin}")
        return self._default(name)

    def _default(self, name: str) -> Result:
        if self.configuration.framework == "nnscaler":
            from tvlint.frameworks.nnscaler import DEFAULTS

            return DEFAULTS[name] if name in DEFAULTS else Unknown(f"`{name}` is not given")
        if not has_default_of_megatron(self.configuration.framework, name):
            others = KEPT.get(self.configuration.framework, {})
            if name in others:
                return others[name]
            if self.configuration.supposed and CORE in lineage(self.configuration.framework):
                from tvlint.frameworks.core_defaults import DEFAULTS

                if name in DEFAULTS:
                    return DEFAULTS[name]
            return Unknown(f"the default of `{name}` in {self.configuration.framework} is not known")
        from tvlint.frameworks.megatron import Missing, default

        found: SettingValue | Missing = default(name)
        return Unknown(f"`{name}` is not given") if isinstance(found, Missing) else found


def _published(configuration: Configuration) -> Mapping[str, SettingValue]:
    """Return the sizes of the model that the run starts from; what serves one is built in its own way."""
    from tvlint.topology.published_models import published_sizes
    from tvlint.topology.role import Role, role_of

    return published_sizes(configuration) if role_of(configuration) is not Role.SERVES else {}
