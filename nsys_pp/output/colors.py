"""One color for each kind of job, in every output.

A drawing refers to kinds. Each viewer needs the color of a kind in another form:

* Perfetto's UI accepts no colors. It computes a color from a hash of the slice's correlation id, or of
  its name if it has none: `ui/src/components/colorizer.ts` (`proceduralColorScheme`) and
  `ui/src/base/hash.ts` of https://github.com/google/perfetto/blob/v52.0. So each kind has a
  seed: a correlation id that hashes to the intended hue and lightness. The UI shows the seed among the
  slice's arguments, so it begins with the name of the kind. Versions of the UI that highlight all slices
  with the correlation id of the slice under the mouse highlight all slices of the kind (v52 highlights
  only that slice).
* The viewer of Chrome's JSON accepts the names of a fixed palette: `tracing/base/color_scheme.html`
  of https://chromium.googlesource.com/catapult.
* Charts use the RGB values, which are the colors in Perfetto's UI.

Slices without a kind (ordinary ranges and kernels) are colored by the viewer, by name.
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl
from msgspec import Struct

from nsys_pp.frames.training import JOB_KINDS


class Color(Struct, frozen=True):
    """Color of one kind, for each viewer."""

    seed: str  # Perfetto
    cname: str  # Chrome
    rgb: str  # `#rrggbb`


COLORS = {  # hue and lightness of HSLuv at a saturation of 80 %, as Perfetto's UI gets them from the seed
    "forward": Color("forward 67", "rail_response", "#4c96e7"),  # hue 249, lightness 61
    "backward": Color("backward 262", "rail_load", "#41a94d"),  # hue 130, lightness 62
    # hue 164, lightness 68
    "weight_gradient": Color("weight_gradient 43", "thread_state_running", "#4cb79b"),
    "forward_backward": Color("forward_backward 1896", "good", "#347d79"),  # hue 186, lightness 48
    "recompute": Color("recompute 843", "background_memory_dump", "#5cc8e8"),  # hue 220, lightness 76
    "optimizer": Color("optimizer 135", "detailed_memory_dump", "#a555e3"),  # hue 284, lightness 52
    "send": Color("send 130", "rail_idle", "#e99049"),  # hue 36, lightness 68
    "receive": Color("receive 140", "startup", "#d7b953"),  # hue 68, lightness 76
    "data": Color("data 77", "olive", "#956930"),  # hue 48, lightness 48
    "communication": Color("communication 158", "rail_animation", "#ef653f"),  # hue 20, lightness 60
    "compute": Color("compute 349", "thread_state_runnable", "#a6abef"),  # hue 264, lightness 72
    "copy": Color("copy 20", "thread_state_uninterruptible", "#ed6cc4"),  # hue 328, lightness 64
    "memset": Color("memset 1073", "cq_build_failed", "#f2a0e4"),  # hue 316, lightness 76
    "graph": Color("graph 539", "light_memory_dump", "#49a8ad"),  # hue 197, lightness 64
    "range": Color("range 1453", "cq_build_abandoned", "#6fb7ef"),  # hue 240, lightness 72
    "step": Color("step 72", "generic_work", "#315caa"),  # hue 256, lightness 40
    "bubble": Color("bubble 7", "terrible", "#bd2e64"),  # hue 356, lightness 44
    # causes of bubbles other than "copy" and "data"
    "message_wait": Color("message_wait 8", "thread_state_iowait", "#f18696"),  # hue 4, lightness 68
    "message_transfer": Color("message_transfer 1143", "yellow", "#dea64e"),  # hue 53, lightness 72
    "message": Color("message 883", "cq_build_passed", "#f3a89d"),  # hue 20, lightness 76
    "collective_wait": Color("collective_wait 771", "cq_build_running", "#eda1f2"),  # hue 305, lightness 76
    # hue 295, lightness 59
    "collective_transfer": Color("collective_transfer 3497", "cq_build_attempt_failed", "#c962e8"),
    "collective": Color("collective 253", "cq_build_attempt_passed", "#ba3ab1"),  # hue 312, lightness 48
    "host": Color("host 563", "bad", "#adaa49"),  # hue 84, lightness 68
    "loading": Color("loading 53", "heap_dump_object_type", "#49bb5f"),  # hue 132, lightness 68
    "profiler": Color("profiler 480", "vsync_highlight_color", "#286a50"),  # hue 152, lightness 40
    "unknown": Color("unknown 486", "thread_state_unknown", "#657930"),  # hue 102, lightness 48
    "idle": Color("idle 347", "thread_state_sleeping", "#428eb4"),  # hue 232, lightness 56
    "other": Color("other 1402", "grey", "#86913c"),  # hue 94, lightness 58
}


def perfetto_seeds(keys: Iterable[str | None]) -> list[str]:
    """Return the seed of each key, for Perfetto's UI; a key without a color is its own seed."""
    return [COLORS[key].seed if key in COLORS else key for key in keys if key is not None]


def chrome_names(keys: pl.Series) -> pl.Series:
    """Return the palette name of each key, for the viewer of Chrome's JSON.

    Null for a key without a color.
    """
    return pl.Series([COLORS[key].cname if key in COLORS else None for key in keys], dtype=pl.String)


WHITE, BLACK = "#ffffff", "#000000"

# Hatches of causes and of waiting messages, whose tints look alike: SVG paths in a tile of `HATCH_PX` pixels.
HATCH_PX = 6
_SLASH, _BACKSLASH = "M-1 1l2 -2M0 6l6 -6M5 7l2 -2", "M-1 5l2 2M0 0l6 6M5 -1l2 2"
HATCHES = {
    "message_wait": _SLASH,
    "collective_wait": _BACKSLASH,
    "message_transfer": "M0 3h6",
    "collective_transfer": "M3 0v6",
    "message": _SLASH + _BACKSLASH,
    "collective": "M0 3h6M3 0v6",
    "copy": "M1 2h2M4 5h2",
    "data": "M0 1h6M0 3h6M0 5h6",
    "send": _SLASH,
    "receive": _SLASH,
}

# Number of shades; chunk 4 has the shade of chunk 0 again.
SHADES = 4
SHADE_STEP = 0.17  # share of white that each shade adds


# Keys without an own color in charts: what is in no job is compute, as in bars.
_SAME_AS = {"send_receive": "communication", "other": "compute"}


def color_of(key: str) -> str:
    """Return the color of a kind of job or a cause."""
    return COLORS[_SAME_AS.get(key, key)].rgb


def mix(color: str, other: str, share: float) -> str:
    """Mix two colors; `share` (0 to 1) is the share of `other`."""
    pairs = zip(bytes.fromhex(color[1:]), bytes.fromhex(other[1:]), strict=True)
    return "#" + bytes(round(a * (1 - share) + b * share) for a, b in pairs).hex()


def shade_of(kind: str, shade: int) -> str:
    """Return the fill of a kind's bars: the color of the kind, lighter with each shade."""
    return mix(color_of(kind), WHITE, SHADE_STEP * shade)


def text_on(fill: str) -> str:
    """Return black or white, the color with more contrast on the fill; its contrast is at least 4.5."""
    return max((BLACK, WHITE), key=lambda text: contrast(text, fill))


def contrast(color: str, other: str) -> float:
    """Return the contrast ratio of two colors, 1 to 21 (WCAG 2.2, "contrast ratio")."""
    dark, light = sorted((_luminance(color), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def kind_looks() -> list[list[dict[str, str]]]:
    """Return the fill and the text color of each kind (in the order of `JOB_KINDS`) and shade."""
    return [
        [{"fill": shade_of(kind, shade), "text": text_on(shade_of(kind, shade))} for shade in range(SHADES)]
        for kind in JOB_KINDS
    ]


def _luminance(color: str) -> float:
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (value / 255 for value in bytes.fromhex(color[1:]))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
