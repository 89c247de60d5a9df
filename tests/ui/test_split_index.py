"""The index page of a divided run in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys_pp.output.split_index import SplitFile, write_index
from tests.importer.parts import PartMissingError
from tests.ui.chart import Step, visit

NASTY = "</style><script>document.title='owned'</script><img src=x onerror=alert(2)> \"'\\ 😀 \u202egnirts"
CONTRAST = """(() => {
  const luminance = (color) => {
    const parts = color.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255)
      .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const page = luminance(getComputedStyle(document.body).backgroundColor);
  return Math.min(...[...document.querySelectorAll('h1, p, a, td, th, caption')].map((element) => {
    const [dark, light] = [luminance(getComputedStyle(element).color), page].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  }));
})()"""
READ = """({ title: document.title, injected: document.querySelectorAll('img, script').length,
  rows: document.querySelectorAll('tbody tr').length, background: getComputedStyle(document.body).backgroundColor,
  links: [...document.links].map((link) => link.getAttribute('href')),
  texts: [...document.links].map((link) => link.textContent),
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth })"""


def describe(path: Path, title: str) -> SplitFile:
    return SplitFile(
        path=path,
        title=title,
        machines=(title,),
        ranks=(0, 1, 2, 9),
        steps=(10, 11),
        slice_count=1_234_567,
        event_count=2_000_000,
        size_bytes=12_345_678,
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 360])
def test_the_page_is_readable_and_safe(scheme: str, width: int, tmp_path: Path) -> None:
    page = tmp_path / "index.html"
    files = [describe(tmp_path / "a_b.pftrace", NASTY), describe(tmp_path / "node2.pftrace", "node2")]
    write_index(
        page, overview=describe(tmp_path.parent / "a b#?.pftrace", "all"), files=files, unit="machine"
    )
    steps: list[Step] = [["evaluate", READ], ["evaluate", CONTRAST]]
    try:
        visited = visit(page, steps, width=width, scheme=scheme, ready="document.readyState === 'complete'")
    except PartMissingError as error:
        pytest.skip(str(error))
    assert visited.errors == []
    assert visited.requests == []
    read, contrast = visited.values
    assert read["title"] == "Traces of a b#?.pftrace"
    assert (read["injected"], read["rows"]) == (0, 3)
    assert read["links"] == ["../a%20b%23%3F.pftrace", "a_b.pftrace", "node2.pftrace"]
    assert read["texts"][1] == NASTY
    assert read["wide"] <= 0
    assert (read["background"] == "rgb(255, 255, 255)") == (scheme == "light")
    assert contrast >= 4.5
