"""Bytes that anybody may have written -> a record, or a refusal in one line. Nothing is unpacked to disk.

A record is one file: ``record.json`` of `servegate check`, or ``ab.json`` of `servegate ab`.
"""

from __future__ import annotations

import io
import stat
import zipfile
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from servegate.ab.record import AbRecord
from servegate.bundle import AB_RECORD, RECORD
from servegate.errors import MeasurementError
from servegate.record import RunRecord

Measured = RunRecord | AbRecord

KINDS: Final[dict[str, type[RunRecord] | type[AbRecord]]] = {RECORD: RunRecord, AB_RECORD: AbRecord}
MAX_ARCHIVE: Final = 32 * 2**20
MAX_RECORD: Final = 128 * 2**20
MAX_RATIO: Final = 200
"""Packed numbers and JSON shrink by less than that; a bomb by a thousand."""


class RefusedError(MeasurementError):
    """This is no record that `servegate` wrote, whatever else it is."""


def read_path(path: Path) -> Measured:
    """A folder that holds a record, the record itself, or the archive as GitHub stores it."""
    file = _in_folder(path) if path.is_dir() and not path.is_symlink() else path
    try:
        info = file.lstat()
        if not stat.S_ISREG(info.st_mode):
            raise RefusedError(f"{file}: not a plain file")
        if info.st_size > MAX_RECORD:
            raise RefusedError(f"{file}: larger than {MAX_RECORD:,} bytes")
        content = file.read_bytes()
    except OSError as error:
        raise RefusedError(f"{file}: {error.strerror or error}") from None
    return read_archive(content) if zipfile.is_zipfile(file) else parse(content, file.name)


def read_archive(content: bytes) -> Measured:
    """A zip with one entry, a record, of a size that it does not lie about."""
    if len(content) > MAX_ARCHIVE:
        raise RefusedError(f"the artifact is larger than {MAX_ARCHIVE:,} bytes")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return parse(*_only_entry(archive))
    except RefusedError:
        raise
    except Exception as error:  # a broken archive raises whatever the module that trips over it does
        raise RefusedError(f"the artifact is not a sound zip file ({type(error).__name__})") from None


def parse(content: bytes, name: str = RECORD) -> Measured:
    """Checked by the schema: unknown keys, NaN, infinity and counts out of range are refused."""
    try:
        record = KINDS.get(name, RunRecord).model_validate_json(content)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, fault["loc"]))[:100] or "the file"
        raise RefusedError(f"the artifact is not a valid record: {where}: {fault['type']}") from None
    if "schema_version" not in record.model_fields_set:
        raise RefusedError("the artifact is not a valid record: it names no schema_version")
    return record


def _in_folder(folder: Path) -> Path:
    """Of both, none is guessed to be the newer one."""
    found = [folder / name for name in KINDS if (folder / name).exists()]
    if len(found) > 1:
        raise RefusedError(f"{folder}: holds both {RECORD} and {AB_RECORD}; name the one that counts")
    return found[0] if found else folder / RECORD


def _only_entry(archive: zipfile.ZipFile) -> tuple[bytes, str]:
    entries = archive.infolist()
    if len(entries) != 1:
        raise RefusedError(f"the artifact has {len(entries)} entries; exactly one, a record, is accepted")
    entry = entries[0]
    if entry.filename not in KINDS or entry.is_dir() or stat.S_ISLNK(entry.external_attr >> 16):
        raise RefusedError(f"the artifact's entry is not a plain file named {' or '.join(KINDS)}")
    if entry.file_size > MAX_RECORD or entry.file_size > MAX_RATIO * max(entry.compress_size, 1):
        raise RefusedError("the artifact's entry is too large, or shrinks more than a record can")
    with archive.open(entry) as stream:
        content = stream.read(MAX_RECORD + 1)
    if len(content) != entry.file_size:
        raise RefusedError("the artifact's entry has another size than the archive says")
    return content, entry.filename
