"""Read the bytes of a plain or gzip log, hashing and counting them on the way."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from llmserve_env.errors import TraceFormatError

Progress = Callable[[int], object]
"""Called with the number of further bytes that have been read."""

_FOREIGN_MAGIC = {
    b"PAR1": "a parquet file; an imported trace needs no import, see `llmserve trace show`",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; unpack it first",
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"BZh": "compressed with bzip2; unpack it first",
    b"\xfd7zXZ": "compressed with xz; unpack it first",
    b"\xff\xfe": "text in UTF-16; convert it to UTF-8 first",
    b"\xfe\xff": "text in UTF-16; convert it to UTF-8 first",
}
_GZIP_MAGIC = b"\x1f\x8b"


class _HashingFile(io.RawIOBase):
    """A file that hashes and reports every byte it returns."""

    def __init__(self, path: Path, progress: Progress) -> None:
        super().__init__()
        self._file = path.open("rb", buffering=0)
        self._progress = progress
        self.sha256 = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer)
        size = self._file.readinto(view) or 0
        self.sha256.update(view[:size])
        self._progress(size)
        return size

    def close(self) -> None:
        self._file.close()
        super().close()


class LogSource:
    """An open log: read `text`, then take the `sha256()` of the file on disk."""

    def __init__(self, path: Path, progress: Progress) -> None:
        magic = _magic(path)
        self._raw = _HashingFile(path, progress)
        buffered: io.BufferedReader | gzip.GzipFile = io.BufferedReader(self._raw, buffer_size=1 << 20)
        if magic.startswith(_GZIP_MAGIC):
            buffered = gzip.GzipFile(fileobj=buffered)
        # Bytes that are not UTF-8 become surrogates, so that the affected row can be reported.
        self.text = io.TextIOWrapper(buffered, encoding="utf-8-sig", errors="surrogateescape", newline="")

    def sha256(self) -> str:
        """Digest of the bytes read so far; of the whole file once `text` is exhausted."""
        return self._raw.sha256.hexdigest()


def _magic(path: Path) -> bytes:
    if not path.exists():
        raise TraceFormatError(f"{path}: no such file; give the path of a request log")
    if not path.is_file():
        raise TraceFormatError(f"{path}: is not a file; give the path of one request log, plain or gzip")
    with path.open("rb") as file:
        magic = file.read(8)
    if not magic:
        raise TraceFormatError(f"{path}: is empty; a log needs at least one request")
    for prefix, what in _FOREIGN_MAGIC.items():
        if magic.startswith(prefix):
            raise TraceFormatError(f"{path}: is {what}; allowed: UTF-8 text, plain or gzip")
    return magic


@contextmanager
def open_log(path: Path, progress: Progress) -> Iterator[LogSource]:
    """Open a log for reading; a damaged gzip stream is reported as such."""
    source = LogSource(path, progress)
    try:
        yield source
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceFormatError(
            f"{path}: the gzip stream is damaged ({error}); fetch or compress the file again"
        ) from error
    finally:
        source.text.close()
