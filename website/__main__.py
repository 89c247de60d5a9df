"""`python -m website [-o FOLDER]`: builds the site; a broken link or any other warning is an error."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from website.build import build_site

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m website", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("build/site"), help="default: build/site")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        problems = build_site(Path(work))
        for problem in problems:
            print(problem, file=sys.stderr)
        if problems:
            sys.exit(1)
        shutil.rmtree(options.output, ignore_errors=True)
        shutil.copytree(Path(work, "html"), options.output)
    print(f"Wrote {options.output / 'index.html'}")
