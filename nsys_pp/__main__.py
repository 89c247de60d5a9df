"""`python -m nsys_pp`."""

from __future__ import annotations

from nsys_pp.cli.program import run

if __name__ == "__main__":
    run()
