"""`python -m website.pictures`: draws all pictures anew; the same fixtures and code make the same bytes."""

from __future__ import annotations

import tempfile
from pathlib import Path

from website.pictures.draw import draw_pictures

FOLDER = Path(__file__).parent.parent.parent / "docs" / "pictures"

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        for name, text in draw_pictures(Path(work)).items():
            (FOLDER / f"{name}.svg").write_text(text)
            print(FOLDER / f"{name}.svg", len(text))
