"""`python -m nsys_pp`."""

from __future__ import annotations

from nsys_pp.cli import main

if __name__ == "__main__":
    main(prog_name="nsys-pp")
