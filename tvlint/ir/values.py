"""Dataclasses that are defined in a tenth of the time, for the modules that every check of a configuration imports.

They do what those of the standard library do, for classes without bases. The standard decorator compiles up to eight functions
a class, and its module imports `inspect`; for eighty classes that is a third of the time of a check. What is made here is a
dataclass to the standard library, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass", "field", "fields", "is_dataclass", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass, field, fields, is_dataclass, replace
else:

    class field:
        """One field: its name, or what makes its default."""

        __slots__ = ("default_factory", "name")

        def __init__(self, name: str = "", *, default_factory: Callable[[], Any] | None = None) -> None:
            self.name, self.default_factory = name, default_factory

    def dataclass(*, slots: bool, frozen: bool = False, eq: bool = True) -> Callable[[type], type]:
        """Return what makes a dataclass of a class."""

        def made(cls: type) -> type:
            space = {name: var for name, var in vars(cls).items() if name not in ("__dict__", "__weakref__")}
            names = tuple(cls.__annotations__)
            defaults = {name: space.pop(name) for name in names if name in space}
            space |= {"__slots__": names, "__match_args__": names, "__dataclass_fields__": _Fields(defaults)}
            space |= {"__init__": _Start(cls, names, defaults), "__repr__": _repr}
            space |= {"__getstate__": _state, "__setstate__": _set_state}
            space |= {"__setattr__": _refuse, "__delattr__": _refuse} if frozen else {}
            return type(cls.__name__, (), space | (_equality(names, frozen) if eq else {}))

        return made

    def fields(value: Any) -> tuple[field, ...]:
        """Return the fields of a dataclass or of a value of one."""
        return tuple(map(field, value.__match_args__))

    def is_dataclass(value: Any) -> bool:
        """Return whether the value is a dataclass or one of its values."""
        return "__dataclass_fields__" in vars(value if isinstance(value, type) else type(value))

    def replace(value: Any, /, **changes: Any) -> Any:
        """Return the value with other fields."""
        kept = {name: getattr(value, name) for name in value.__match_args__ if name not in changes}
        return type(value)(**kept, **changes)


_NEW = object()
"""The default of a field that is made anew."""


class _Fields:
    """The fields as the standard library has them, made when somebody asks."""

    def __init__(self, defaults: Mapping[str, Any]) -> None:
        self.defaults = defaults

    def __get__(self, value: object, owner: Any) -> Mapping[str, Any]:
        import dataclasses

        def made(name: str) -> Any:
            default = self.defaults.get(name, dataclasses.MISSING)
            factory = _factory(default)
            return dataclasses.field(default=default) if factory is None else dataclasses.field(default_factory=factory)

        rows = [(name, owner.__annotations__[name], made(name)) for name in owner.__match_args__]
        like: Any = dataclasses.make_dataclass(owner.__name__, rows)
        owner.__dataclass_fields__ = like.__dataclass_fields__
        found: Mapping[str, Any] = owner.__dataclass_fields__
        return found


def _factory(default: Any) -> Callable[[], Any] | None:
    """Return what makes the default anew for each value; None for a default that all share."""
    return default.default_factory if type(default).__module__ == __name__ else None


class _Start:
    """The `__init__` of a class, made when its first value is: a run makes values of a third of the classes that it imports."""

    def __init__(self, cls: type, names: tuple[str, ...], defaults: Mapping[str, Any]) -> None:
        if tuple(defaults) != names[len(names) - len(defaults) :]:
            raise TypeError(f"a field of {cls.__qualname__} without a default follows one with a default")
        self.names, self.defaults = names, defaults

    def __get__(self, value: object, owner: Any) -> Callable[..., None]:
        owner.__init__ = _init(owner, self.names, self.defaults)
        found: Callable[..., None] = owner.__init__ if value is None else owner.__init__.__get__(value)
        return found


def _init(cls: type, names: tuple[str, ...], defaults: Mapping[str, Any]) -> Callable[..., None]:
    """Return the function that takes the fields in order or by name."""
    factories = {name: factory for name, default in defaults.items() if (factory := _factory(default)) is not None}
    code = _compiled(len(names), tuple(names.index(name) for name in factories))
    given_names = {f"_{index}": name for index, name in enumerate(names)}
    code = code.replace(co_name="__init__", co_varnames=tuple(given_names.get(name, name) for name in code.co_varnames))
    setters = {f"set_{index}": vars(cls)[name].__set__ for index, name in enumerate(names)}
    makers = {f"make_{names.index(name)}": make for name, make in factories.items()}
    given = tuple(_NEW if name in factories else default for name, default in defaults.items())
    found: Callable[..., None] = FunctionType(code, {"new_": _NEW, **setters, **makers}, "__init__", given)
    found.__module__, found.__qualname__ = cls.__module__, f"{cls.__qualname__}.__init__"
    return found


@cache
def _compiled(count: int, made: tuple[int, ...]) -> CodeType:
    """Return the code that sets so many fields, given as `_0`, `_1`; those that are made have a default that stands for it.

    Classes with as many fields share it: to compile is what costs.
    """
    body = []
    for index in range(count):
        value = f"make_{index}() if _{index} is new_ else _{index}" if index in made else f"_{index}"
        body.append(f"set_{index}(self, {value})")
    space: dict[str, Any] = {}
    names = ", ".join(["self", *(f"_{index}" for index in range(count))])
    exec(f"def init({names}):\n " + "\n ".join(body or ["pass"]), space)
    found: CodeType = space["init"].__code__
    return found


def _equality(names: tuple[str, ...], frozen: bool) -> dict[str, Any]:
    """Return how values are compared: by all fields; only frozen ones have a hash."""
    parts: Callable[[object], Any] = attrgetter(*names) if names else lambda value: ()

    def equal(self: object, other: object) -> bool:
        return parts(self) == parts(other) if type(other) is type(self) else NotImplemented

    def hashed(self: object) -> int:
        return hash(parts(self))

    return {"__eq__": equal, "__hash__": hashed if frozen else None}


def _repr(self: Any) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__match_args__)})"


def _state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self.__match_args__]


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(self.__match_args__, state, strict=True):
        object.__setattr__(self, name, value)


def _refuse(self: object, name: str, *value: object) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot change field {name!r}")
