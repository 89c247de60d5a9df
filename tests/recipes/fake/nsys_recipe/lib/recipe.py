from __future__ import annotations

import inspect
import json
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from nsys_recipe.lib import args


class Context:
    """Runs what it is given at once; results are to be waited for."""

    def map(self, function: Any, *iterables: Any, **settings: Any) -> list[Any]:
        return [partial(function, *one, **settings) for one in zip(*iterables, strict=True)]

    def wait(self, waitable: Any) -> Any:
        return [one() for one in waitable]


class Recipe:
    def __init__(self, parsed_args: Any) -> None:
        self._parsed_args = parsed_args
        self._output_files: dict[str, str] = {}
        self._analysis_dict: dict[str, Any] = {}

    def run(self, context: Context) -> None:
        self._analysis_dict = {"RecipeName": self._folder().name}

    def add_output_file(self, filename: str, filetype: str | None = None) -> str:
        folder = self._parsed_args.output or f"{self._folder().name}-1"
        os.makedirs(folder, exist_ok=True)
        if filetype:
            self._output_files[filename] = filetype
        return os.path.join(folder, filename)

    def create_notebook(
        self, notebook_name: str, dir_path: str | None = None, replace_dict: dict[str, str] | None = None
    ) -> None:
        text = Path(dir_path or self._folder(), notebook_name).read_text()
        for old, new in (replace_dict or {}).items():
            text = text.replace(old, new)
        Path(self.add_output_file(notebook_name, "Notebook")).write_text(text)

    def create_analysis_file(self) -> None:
        folder = Path(self.add_output_file("x")).parent
        (folder / f"{folder.name}.nsys-analysis").write_text(json.dumps(self._analysis_dict))

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            shutil.rmtree(Path(self.add_output_file("x")).parent)

    def __enter__(self) -> Recipe:
        return self

    @classmethod
    def _folder(cls) -> Path:
        return Path(str(inspect.getmodule(cls).__file__)).parent  # type: ignore[union-attr]

    @classmethod
    def get_metadata(cls, key: str) -> Any:
        value = json.loads((cls._folder() / "metadata.json").read_text())[key]
        return "".join(value) if key == "description" else value

    @classmethod
    def get_argument_parser(cls) -> args.ArgumentParser:
        return args.ArgumentParser(prog=cls._folder().name, description=cls.get_metadata("description"))
