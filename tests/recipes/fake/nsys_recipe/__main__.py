"""What a recipe sees of releases of nsys that cannot be had here, as far as that is known.

Written from facts that NVIDIA's documentation and public programs tell of them, not from their code.
`$FAKE_NSYS` is the release.

This module loads a recipe by its name and runs it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

from nsys_recipe.lib import args, exceptions, recipe

name, *words = sys.argv[1:]
is_late = args.RELEASE >= (2026,)
named = os.environ["NSYS_RECIPE_PATH"]
for place in [*named.split(os.pathsep), ""] if is_late else ["", named]:
    if (metadata := Path(place, name, "metadata.json")).exists():
        told = json.loads(metadata.read_text())
        sys.path.append(place)
        module = importlib.import_module(f"{name}.{told['moduleName' if is_late else 'module_name']}")
        adapter = getattr(module, told["className" if is_late else "class_name"])
        break
else:
    sys.exit("Unknown recipe.")
parser = adapter.get_argument_parser()
parser.add_context_arguments()
try:
    with adapter(parser.parse_args(words)) as one:
        one.run(recipe.Context())
except exceptions.ValueError as error:
    print(f"ERROR: {error}")
    sys.exit(1)
