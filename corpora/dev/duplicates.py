"""Find files with the same content below one or more directories.

Files are compared in three steps, from the cheap to the expensive: by size,
by the hash of their first block, and by the hash of the whole file.  Most
files drop out in the first step and are never opened.
"""

import argparse
import hashlib
import os
import stat
import sys
from collections import defaultdict

BLOCK_SIZE = 64 * 1024


class Statistics:
    """Counters that are shown at the end of a run."""

    def __init__(self):
        self.files = 0
        self.errors = 0
        self.bytes_read = 0

    def report(self, file=sys.stderr):
        print("%d files seen, %d bytes read, %d errors"
              % (self.files, self.bytes_read, self.errors), file=file)


class Finder:
    """Collect files, then group those that are equal.

    The argument *on_error* is called with an OSError for each file or
    directory that could not be read; the file is then left out.
    """

    def __init__(self, min_size=1, follow_links=False, on_error=None):
        self.min_size = min_size
        self.follow_links = follow_links
        self.on_error = on_error
        self.statistics = Statistics()
        self._by_size = defaultdict(list)
        self._seen = set()

    def add_tree(self, top):
        """Add all regular files below the directory *top*."""
        for dirpath, dirnames, filenames in os.walk(
                top, onerror=self._error, followlinks=self.follow_links):
            # A fixed order makes the output the same on every system.
            dirnames.sort()
            for name in sorted(filenames):
                self.add_file(os.path.join(dirpath, name))

    def add_file(self, path):
        """Add one file, unless it is too small or a hard link of another."""
        try:
            st = os.stat(path, follow_symlinks=self.follow_links)
        except OSError as exc:
            self._error(exc)
            return
        if not stat.S_ISREG(st.st_mode) or st.st_size < self.min_size:
            return
        key = (st.st_dev, st.st_ino)
        if key in self._seen:
            return
        self._seen.add(key)
        self.statistics.files += 1
        self._by_size[st.st_size].append(path)

    def groups(self):
        """Yield (size, paths) for each group of two or more equal files.

        The largest files come first.
        """
        for size in sorted(self._by_size, reverse=True):
            paths = self._by_size[size]
            if len(paths) < 2:
                continue
            for same_head in self._split(paths, BLOCK_SIZE):
                if size <= BLOCK_SIZE:
                    yield size, same_head
                else:
                    for same in self._split(same_head, None):
                        yield size, same

    def _split(self, paths, limit):
        """Split *paths* by the hash of at most *limit* bytes."""
        by_digest = defaultdict(list)
        for path in paths:
            try:
                digest = self._digest(path, limit)
            except OSError as exc:
                self._error(exc)
            else:
                by_digest[digest].append(path)
        return [group for group in by_digest.values() if len(group) > 1]

    def _digest(self, path, limit):
        hasher = hashlib.sha256()
        with open(path, "rb") as f:
            while True:
                block = f.read(BLOCK_SIZE)
                if not block:
                    break
                self.statistics.bytes_read += len(block)
                hasher.update(block)
                if limit is not None:
                    limit -= len(block)
                    if limit <= 0:
                        break
        return hasher.digest()

    def _error(self, exc):
        self.statistics.errors += 1
        if self.on_error is not None:
            self.on_error(exc)


def parse_size(text):
    """Convert '10', '4k', '2M' or '1G' to a number of bytes."""
    units = {"k": 1024, "m": 1024 ** 2, "g": 1024 ** 3}
    number, unit = text, 1
    if text and text[-1].lower() in units:
        number, unit = text[:-1], units[text[-1].lower()]
    try:
        value = int(number)
    except ValueError:
        raise argparse.ArgumentTypeError("invalid size: %r" % text) from None
    if value < 0:
        raise argparse.ArgumentTypeError("size must not be negative")
    return value * unit


def build_parser():
    parser = argparse.ArgumentParser(
        description="Find files with the same content.")
    parser.add_argument("paths", nargs="+", metavar="PATH",
                        help="file or directory to look at")
    parser.add_argument("-s", "--min-size", type=parse_size, default=1,
                        metavar="SIZE",
                        help="ignore files that are smaller than SIZE")
    parser.add_argument("-L", "--follow", action="store_true",
                        help="follow symbolic links")
    parser.add_argument("-0", "--null", action="store_true",
                        help="end each name with a null character")
    parser.add_argument("-v", "--verbose", action="store_true",
                        help="print statistics at the end")
    return parser


def main(argv=None):
    args = build_parser().parse_args(argv)

    def warn(exc):
        print("duplicates: %s: %s" % (exc.filename, exc.strerror),
              file=sys.stderr)

    finder = Finder(args.min_size, args.follow, on_error=warn)
    for path in args.paths:
        if os.path.isdir(path):
            finder.add_tree(path)
        else:
            finder.add_file(path)

    terminator = "\0" if args.null else "\n"
    wasted = 0
    for size, paths in finder.groups():
        for path in paths:
            sys.stdout.write(path + terminator)
        sys.stdout.write(terminator)
        wasted += size * (len(paths) - 1)
    if args.verbose:
        finder.statistics.report()
        print("%d bytes could be saved" % wasted, file=sys.stderr)
    return 1 if finder.statistics.errors else 0


if __name__ == "__main__":
    sys.exit(main())
