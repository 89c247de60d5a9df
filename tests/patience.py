"""The time after which a test gives up on a program that hangs; no test depends on the speed of the machine."""

from __future__ import annotations

PATIENCE_S = 600
