"""Server-sent events, as the WHATWG's HTML standard (9.2.6) reads them, from bytes cut anywhere."""

from __future__ import annotations

import re
from typing import Final

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
"""No other character ends a line: JSON may hold U+2028 as it stands."""
_BOM: Final = b"\xef\xbb\xbf"


class EventReader:
    """Feed it bytes, get the data of the events that they complete. Comments are keep-alives: no event."""

    def __init__(self) -> None:
        self._rest = b""
        self._after_cr = False
        self._at_start = True
        self._data: list[str] = []

    @property
    def truncated(self) -> bool:
        """Did the stream end inside of an event, which the standard then drops?"""
        return bool(self._rest or self._data)

    def feed(self, chunk: bytes) -> list[str]:
        """The data of each event that this chunk completes, in order."""
        if not chunk:
            return []
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]  # of a CR LF that was cut in two
        self._after_cr = chunk.endswith(b"\r")
        *lines, self._rest = _LINE_END.split(self._rest + chunk)
        return [data for line in lines if (data := self._take(line)) is not None]

    def _take(self, line: bytes) -> str | None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            data, self._data = self._data, []
            return "\n".join(data) if data else None
        name, _, value = line.decode("utf-8", errors="replace").partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))
        return None
