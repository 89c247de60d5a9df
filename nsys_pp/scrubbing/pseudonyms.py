"""Pseudonyms of machines, users and paths: equal names have equal pseudonyms in all reports of one call.

Numbers follow the order of the names, so that rows of the copies have the order of those of the originals.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from msgspec import Struct, field

from nsys_pp.arrays.names import natural_key

# Text in place of a secret that is part of a name.
REMOVED = "removed"

_LEAST_LETTERS = 4  # of a host or user name that is replaced inside other texts: shorter ones are words, too
_PATH = re.compile(r"(?<![\w./\\~])(?:[A-Za-z]:)?(?:[/\\][\w.@+~%=,-]+){2,}")
_NOTHING = re.compile("(?!)")
_SEPARATOR = re.compile(r"([/\\]+)")
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,5}$")
_UUID = re.compile(r"(?i)(?<![0-9a-f])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f])")
_PARTIAL_UUID = re.compile(r"(?i)(?<=GPU-|MIG-)[0-9a-f]{8}(?:-[0-9a-f]{1,12}){0,3}(?![0-9a-f-])")


class Identities(Struct, frozen=True, kw_only=True):
    """Names of the originals that are to be replaced or removed."""

    hosts: frozenset[str] = frozenset()
    machine_ids: frozenset[str] = frozenset()  # of hardware
    uuids: frozenset[str] = frozenset()  # of GPUs, in lower case
    users: frozenset[str] = frozenset()
    secrets: frozenset[str] = frozenset()  # values of variables with telling names

    def joined(self, other: Identities) -> Identities:
        """Return the names of both."""
        return Identities(
            **{name: getattr(self, name) | getattr(other, name) for name in self.__struct_fields__}
        )


class Pseudonyms(Struct, kw_only=True):
    """Replacement of texts.

    Attributes:
        secrets: Texts that are removed wherever they occur.
        words: Pseudonym of each name, by the name in lower case.
        replaces_paths: Replace absolute paths, component by component.
    """

    secrets: Sequence[str]
    words: Mapping[str, str]
    uuids: Mapping[str, str]
    replaces_paths: bool
    _escaped: re.Pattern[str] = _NOTHING
    _pattern: re.Pattern[str] = _NOTHING
    _any_pattern: re.Pattern[str] = _NOTHING  # also of short names
    _components: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._escaped = re.compile("|".join(map(_match_json, self.secrets)) or _NOTHING.pattern)
        self._pattern = _match_words(word for word in self.words if len(word) >= _LEAST_LETTERS)
        self._any_pattern = _match_words(self.words)

    def replace(self, text: str) -> str:
        """Replace all names in a text; a text that is a name has its pseudonym."""
        for secret in self.secrets:
            text = text.replace(secret, REMOVED)
        if "\\" in text:
            text = self._escaped.sub(REMOVED, text)
        if (word := self.words.get(text.lower())) is not None:
            return word
        if self.replaces_paths:
            text = _PATH.sub(self._replace_path, text)
        return self.replace_words(text)

    def replace_words(self, text: str, *, with_short: bool = False) -> str:
        """Replace names of machines and users inside a text, and uuids.

        Short names only where no other word is expected.
        """
        text = self._replace_uuids(text)
        pattern = self._any_pattern if with_short else self._pattern
        return pattern.sub(lambda match: self.words[match[0].lower()], text)

    def _replace_uuids(self, text: str) -> str:
        if not self.uuids:
            return text
        text = _UUID.sub(lambda match: self.uuids.get(match[0].lower(), match[0]), text)
        return _PARTIAL_UUID.sub(self._replace_start, text)

    def _replace_start(self, match: re.Match[str]) -> str:
        """Replace the start of a uuid, if it is of one GPU only."""
        whole = [uuid for uuid in self.uuids if uuid.startswith(match[0].lower())]
        return self.uuids[whole[0]][: len(match[0])] if len(whole) == 1 else match[0]

    def _replace_path(self, match: re.Match[str]) -> str:
        return "".join(
            part if not part or _SEPARATOR.fullmatch(part) or part.endswith(":") else self._name(part)
            for part in _SEPARATOR.split(match[0])
        )

    def _name(self, part: str) -> str:
        suffix = _SUFFIX.search(part)
        if part not in self._components:
            self._components[part] = f"p{len(self._components) + 1}{suffix[0] if suffix else ''}"
        return self._components[part]


def choose_pseudonyms(names: Identities, *, hosts: bool, users: bool, paths: bool) -> Pseudonyms:
    """Choose a pseudonym for each name.

    Args:
        names: Names in all reports.
        hosts: Replace host names, and ids of machines and GPUs.
        users: Replace user names.
        paths: Replace absolute paths.
    """
    words: dict[str, str] = {}
    uuids: dict[str, str] = {}
    if users:
        words |= _number(names.users, "user")
    if hosts:
        words |= _number(names.machine_ids, "machine")
        whole = _number(names.hosts, "host")
        # the first label of a name with a domain stands for the machine, too
        short = {name.partition(".")[0]: word for name, word in whole.items() if not name[:1].isdigit()}
        words |= short | whole
        # distinct in the first digits, by which a GPU may be named
        uuids = {
            uuid: f"{at:08x}-0000-0000-0000-000000000000"
            for at, uuid in zip(count(1), sorted(names.uuids), strict=False)
        }
    return Pseudonyms(
        secrets=sorted(names.secrets, key=len, reverse=True), words=words, uuids=uuids, replaces_paths=paths
    )


_SHORT = {"\n": "n", "\t": "t", "\r": "r", "\b": "b", "\f": "f"}


def _match_json(text: str) -> str:
    r"""Return the pattern of a text as JSON may write it, with any letter escaped, also inside other JSON.

    >>> [bool(re.fullmatch(_match_json('"é='), text)) for text in ('\\"é=', r'\u0022\u00E9\\u003d', 'é=')]
    [True, True, False]
    """
    parts = []
    for letter in text:
        units = memoryview(letter.encode("utf-16-le", "surrogatepass")).cast("H")
        escaped = "".join(rf"\\+u{unit:04x}" for unit in units)
        parts.append(rf"(?:\\*{re.escape(letter)}|(?i:{escaped})|\\+{_SHORT.get(letter, '(?!)')})")
    return "".join(parts)


def _match_words(words: Iterable[str]) -> re.Pattern[str]:
    """Match any of some names, between other characters than letters and digits."""
    choices = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)) or _NOTHING.pattern
    return re.compile(rf"(?i)(?<![A-Za-z0-9])(?:{choices})(?![A-Za-z0-9])")


def _number(names: Iterable[str], prefix: str) -> dict[str, str]:
    distinct = sorted({name.lower() for name in names}, key=natural_key)
    return {name: f"{prefix}{at}" for at, name in zip(count(1), distinct, strict=False)}
