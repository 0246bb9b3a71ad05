"""An append-only journal of records that survives a crash.

Each record is written as a header of eight bytes, the length of the data
and its CRC-32, both in little-endian order, followed by the data itself.
When a journal is opened after a crash, the last record may be incomplete.
It is then cut off, and everything before it is kept.

    with Journal("events.log") as journal:
        journal.append(b"first")
        journal.append(b"second")

    for record in read_records("events.log"):
        print(record)
"""

import contextlib
import errno
import os
import struct
import zlib

__all__ = ["Journal", "JournalError", "read_records", "compact"]

_header = struct.Struct("<II")

MAX_RECORD = 16 * 1024 * 1024


class JournalError(Exception):
    """Raised if a journal is damaged in a way that a crash cannot explain."""


def _scan(f):
    """Yield (offset, data) for each complete record of the open file *f*.

    Stop in silence at an incomplete record at the end of the file.  Raise
    JournalError for a bad checksum that is followed by more data.
    """
    size = os.fstat(f.fileno()).st_size
    offset = 0
    f.seek(0)
    while offset + _header.size <= size:
        length, checksum = _header.unpack(f.read(_header.size))
        end = offset + _header.size + length
        if end > size:
            return
        data = f.read(length)
        if zlib.crc32(data) != checksum:
            if end == size:
                return
            raise JournalError("bad checksum in record at offset %d" % offset)
        yield offset, data
        offset = end


def read_records(path):
    """Yield the data of all complete records of the journal *path*."""
    with open(path, "rb") as f:
        for _, data in _scan(f):
            yield data


class Journal:
    """A journal that is open for writing.

    If *sync* is true, append() returns only after the data has reached the
    disk.  This is slow, but a record that was appended is never lost.
    """

    def __init__(self, path, sync=False):
        self.path = path
        self.sync = sync
        flags = os.O_RDWR | os.O_CREAT
        flags |= getattr(os, "O_BINARY", 0)
        flags |= getattr(os, "O_CLOEXEC", 0)
        fd = os.open(path, flags, 0o666)
        try:
            self._file = os.fdopen(fd, "r+b")
        except BaseException:
            os.close(fd)
            raise
        try:
            self._recover()
        except BaseException:
            self._file.close()
            raise

    def _recover(self):
        """Cut off an incomplete record and go to the end of the file."""
        end = 0
        self.count = 0
        for offset, data in _scan(self._file):
            end = offset + _header.size + len(data)
            self.count += 1
        self._file.seek(0, os.SEEK_END)
        self.truncated = self._file.tell() - end
        if self.truncated:
            self._file.truncate(end)
            self._file.seek(end)

    @property
    def closed(self):
        return self._file.closed

    def append(self, data):
        """Write one record and return the offset where it begins."""
        if len(data) > MAX_RECORD:
            raise ValueError("record of %d bytes is too long" % len(data))
        offset = self._file.tell()
        record = _header.pack(len(data), zlib.crc32(data)) + data
        try:
            self._file.write(record)
            self._file.flush()
            if self.sync:
                os.fsync(self._file.fileno())
        except OSError:
            # The disk may be full.  Do not leave half a record behind.
            with contextlib.suppress(OSError):
                self._file.truncate(offset)
                self._file.seek(offset)
            raise
        self.count += 1
        return offset

    def read(self, offset):
        """Return the record that begins at *offset*."""
        position = self._file.tell()
        try:
            self._file.seek(offset)
            header = self._file.read(_header.size)
            if len(header) < _header.size:
                raise JournalError("no record at offset %d" % offset)
            length, checksum = _header.unpack(header)
            data = self._file.read(length)
            if len(data) < length or zlib.crc32(data) != checksum:
                raise JournalError("no record at offset %d" % offset)
            return data
        finally:
            self._file.seek(position)

    def close(self):
        self._file.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()

    def __len__(self):
        return self.count


def compact(path, keep):
    """Rewrite the journal *path* with only the records that are wanted.

    The function *keep* is called with the data of each record and returns
    true or false.  The new journal is written to a temporary file next to
    the old one and then takes its place, so that a crash leaves either the
    old journal or the new one, never a mixture.

    Return the number of records that were dropped.
    """
    temporary = path + ".new"
    dropped = 0
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        with Journal(temporary) as journal:
            for data in read_records(path):
                if keep(data):
                    journal.append(data)
                else:
                    dropped += 1
            os.fsync(journal._file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_directory(os.path.dirname(path) or ".")
    return dropped


def _sync_directory(path):
    """Make a renamed file durable, on systems where that is possible."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(fd)
    except OSError as exc:
        if exc.errno not in (errno.EINVAL, errno.EBADF):
            raise
    finally:
        os.close(fd)
