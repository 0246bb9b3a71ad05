"""Summarize the access log of a web server.

The lines are expected in the "common" format, optionally followed by the
referring page and the name of the browser:

    192.0.2.7 - anna [10/Oct/2023:13:55:36 +0200] "GET /a.html HTTP/1.1" 200 2326
"""

import argparse
import collections
import datetime
import gzip
import re
import sys

_line_re = re.compile(r"""
    (?P<host>\S+) \s+ \S+ \s+ (?P<user>\S+) \s+
    \[ (?P<time>[^\]]+) \] \s+
    " (?P<request> (?: [^"\\] | \\. )* ) " \s+
    (?P<status>\d{3}) \s+ (?P<size>\d+|-)
""", re.VERBOSE)

TIME_FORMAT = "%d/%b/%Y:%H:%M:%S %z"


class LineError(ValueError):
    """Raised for a line that is not in the expected format."""


class Entry:
    """One request, as described by a line of the log."""

    __slots__ = ("host", "user", "time", "method", "path", "status", "size")

    @classmethod
    def from_line(cls, line):
        match = _line_re.match(line)
        if match is None:
            raise LineError("malformed line")
        self = cls()
        self.host = match["host"]
        self.user = None if match["user"] == "-" else match["user"]
        try:
            self.time = datetime.datetime.strptime(match["time"], TIME_FORMAT)
        except ValueError as exc:
            raise LineError(str(exc)) from None
        # Broken clients send requests with one word, or with none.
        words = match["request"].split()
        self.method = words[0] if words else ""
        self.path = words[1].partition("?")[0] if len(words) > 1 else ""
        self.status = int(match["status"])
        self.size = 0 if match["size"] == "-" else int(match["size"])
        return self

    @property
    def is_error(self):
        return self.status >= 400


class Summary:
    """Counts that are collected over many entries."""

    def __init__(self):
        self.requests = 0
        self.bytes = 0
        self.skipped = 0
        self.first = None
        self.last = None
        self.paths = collections.Counter()
        self.errors = collections.Counter()
        self.statuses = collections.Counter()
        self.hours = [0] * 24
        self._hosts = set()

    def add(self, entry):
        self.requests += 1
        self.bytes += entry.size
        self.statuses[entry.status] += 1
        self.hours[entry.time.hour] += 1
        self._hosts.add(entry.host)
        if entry.is_error:
            self.errors[entry.status, entry.path] += 1
        else:
            self.paths[entry.path] += 1
        if self.first is None or entry.time < self.first:
            self.first = entry.time
        if self.last is None or entry.time > self.last:
            self.last = entry.time

    def read(self, lines, since=None):
        """Add all the entries of *lines* that are not older than *since*."""
        for line in lines:
            if not line.strip():
                continue
            try:
                entry = Entry.from_line(line)
            except LineError:
                self.skipped += 1
                continue
            if since is None or entry.time >= since:
                self.add(entry)

    @property
    def visitors(self):
        return len(self._hosts)

    def format(self, limit=10):
        """Return the summary as text, with at most *limit* lines a table."""
        lines = []
        write = lines.append
        if not self.requests:
            write("no requests")
            return "\n".join(lines)
        write("from %s to %s" % (self.first, self.last))
        write("%d requests from %d hosts, %s sent"
              % (self.requests, self.visitors, format_size(self.bytes)))
        if self.skipped:
            write("%d lines could not be read" % self.skipped)
        write("")
        write("Most frequent pages:")
        for path, count in self.paths.most_common(limit):
            write("%8d  %s" % (count, path))
        if self.errors:
            write("")
            write("Most frequent errors:")
            for (status, path), count in self.errors.most_common(limit):
                write("%8d  %d %s" % (count, status, path))
        write("")
        write("Requests by hour:")
        highest = max(self.hours)
        for hour, count in enumerate(self.hours):
            bar = "*" * round(50 * count / highest)
            write("%02d %7d %s" % (hour, count, bar))
        return "\n".join(line.rstrip() for line in lines)


def format_size(size):
    """Return a number of bytes in a form for people.

    >>> format_size(999)
    '999 bytes'
    >>> format_size(1536)
    '1.5 KiB'
    """
    if size < 1024:
        return "%d bytes" % size
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024:
            break
    return "%.1f %s" % (size, unit)


def open_log(path):
    """Open a log for reading as text, compressed or not."""
    if path == "-":
        return sys.stdin
    opener = gzip.open if path.endswith(".gz") else open
    return opener(path, "rt", encoding="utf-8", errors="replace")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", default=["-"], metavar="FILE")
    parser.add_argument("-n", "--limit", type=int, default=10,
                        help="length of the tables (default: %(default)s)")
    parser.add_argument("-d", "--days", type=float, metavar="N",
                        help="ignore everything older than N days")
    args = parser.parse_args(argv)
    since = None
    if args.days is not None:
        now = datetime.datetime.now(datetime.timezone.utc)
        since = now - datetime.timedelta(days=args.days)
    summary = Summary()
    status = 0
    for path in args.files:
        try:
            with open_log(path) as f:
                summary.read(f, since)
        except OSError as exc:
            print("logreport: %s: %s" % (path, exc.strerror), file=sys.stderr)
            status = 1
    print(summary.format(args.limit))
    return status


if __name__ == "__main__":
    sys.exit(main())
