from __future__ import annotations

import argparse
import os
from enum import Enum
from pathlib import Path
from typing import Any

RELEASE = tuple(map(int, os.environ["FAKE_NSYS"].split(".")))
# from some release on, all recipes have what each had to ask for before
HAS_OUTPUT = RELEASE >= (2024, 5)
_NAMES = ["INPUT", "SUBTIMERANGE", "CSV", "OUTPUT", "FORCE_OVERWRITE"]
if RELEASE >= (2026,):
    _NAMES = ["FILTER_TIME", "DISABLE_ALIGNMENT", "PER_GPU", "CSV", "INPUT"]
Option = Enum("Option", _NAMES)  # type: ignore[misc]


class _Inputs(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option: str | None = None,
    ) -> None:
        paths = [sorted(path.glob("*.nsys-rep")) if path.is_dir() else [path] for path in map(Path, values)]
        setattr(
            namespace,
            self.dest,
            paths if RELEASE >= (2026,) else [str(one) for some in paths for one in some],
        )


class ArgumentParser(argparse.ArgumentParser):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.recipe_group = self.add_argument_group("Recipe")
        if HAS_OUTPUT:
            self._add("OUTPUT")
            self._add("FORCE_OVERWRITE")
        if RELEASE >= (2026,):
            self.add_argument("--export-dir")
            self.add_argument("--device", help="a flag that nsys-pp has, too")

    def add_recipe_argument(self, option: Any, *args: Any, **settings: Any) -> None:
        if isinstance(option, Option):
            self._add(option.name, **settings)
        else:
            self.recipe_group.add_argument(option, *args, **settings)

    def add_context_arguments(self) -> None:
        self.add_argument("--mode", default="unset" if RELEASE >= (2026,) else "concurrent")

    def _add(self, name: str, **settings: Any) -> None:
        if name == "INPUT":
            settings |= {"nargs": "+", "action": _Inputs}
        elif name != "OUTPUT":
            settings["action"] = "store_true"
        self.recipe_group.add_argument("--" + name.lower().replace("_", "-"), **settings)
