"""Registries that import an entry on its first use: a list of names, as in `--help`, imports none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """Entries by name, each imported from its module on first use.

    Args:
        sources: Module and attribute of each entry, by name, as in `nsys_pp.units:NS_PER_S`.
    """

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources
        self._entries: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            self._entries[name] = import_attribute(self._sources[name])
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._sources

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


def import_attribute(source: str) -> Any:
    """Import an attribute of a module.

    >>> import_attribute("nsys_pp.units:NS_PER_S")
    1000000000
    """
    module, _, attribute = source.partition(":")
    return getattr(import_module(module), attribute)


def import_on_call(source: str) -> Callable[..., Any]:
    """Return a function that imports another one, by module and attribute, when it is called."""

    def call(*args: Any, **options: Any) -> Any:
        return import_attribute(source)(*args, **options)

    return call
