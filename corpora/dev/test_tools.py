"""Unit tests for expression, journal, crontable and duplicates."""

import contextlib
import io
import os
import struct
import tempfile
import unittest
from datetime import datetime

import duplicates
from crontable import CronError, Schedule, read_table
from expression import ExpressionError, evaluate
from journal import Journal, JournalError, compact, read_records


class ExpressionTest(unittest.TestCase):

    def test_precedence(self):
        for text, value in [
            ("1 + 2 * 3", 7),
            ("(1 + 2) * 3", 9),
            ("2 ^ 3 ^ 2", 512),
            ("-2 ^ 2", -4),
            ("2 ^ -1", 0.5),
            ("7 % 4 - 1", 2),
            ("10 - 4 - 3", 3),
            ("8 / 4 / 2", 1),
        ]:
            with self.subTest(text=text):
                self.assertEqual(evaluate(text), value)

    def test_names_and_functions(self):
        self.assertEqual(evaluate("max(1, x, 3)", x=10), 10)
        self.assertAlmostEqual(evaluate("sin(pi / 2)"), 1.0)
        self.assertEqual(evaluate("f()", f=lambda: 42), 42)

    def check_error(self, text, position):
        with self.assertRaises(ExpressionError) as cm:
            evaluate(text)
        self.assertEqual(cm.exception.position, position)

    def test_errors(self):
        self.check_error("1 + $", 4)
        self.check_error("(1 + 2", 6)
        self.check_error("1 2", 2)
        self.check_error("1 / 0", 2)
        self.check_error("1 + unknown", 4)
        self.check_error("sqrt(-1)", 0)
        self.check_error("", 0)


class JournalTest(unittest.TestCase):

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = os.path.join(directory.name, "test.log")

    def write(self, *records):
        with Journal(self.path) as journal:
            return [journal.append(record) for record in records]

    def test_round_trip(self):
        records = [b"", b"one", b"\0" * 1000]
        offsets = self.write(*records)
        self.assertEqual(list(read_records(self.path)), records)
        with Journal(self.path) as journal:
            self.assertEqual(len(journal), 3)
            for offset, record in zip(offsets, records):
                self.assertEqual(journal.read(offset), record)

    def test_every_truncation_is_recovered(self):
        offsets = self.write(b"first", b"second")
        with open(self.path, "rb") as f:
            content = f.read()
        for size in range(offsets[1], len(content)):
            with open(self.path, "wb") as f:
                f.write(content[:size])
            with Journal(self.path) as journal:
                self.assertEqual(len(journal), 1)
                self.assertEqual(journal.truncated, size - offsets[1])
                journal.append(b"third")
            self.assertEqual(list(read_records(self.path)),
                             [b"first", b"third"])

    def test_damage_in_the_middle(self):
        self.write(b"first", b"second")
        with open(self.path, "r+b") as f:
            f.seek(struct.calcsize("<II"))
            f.write(b"F")
        with self.assertRaises(JournalError):
            Journal(self.path)

    def test_read_at_wrong_offset(self):
        self.write(b"first")
        with Journal(self.path) as journal:
            self.assertRaises(JournalError, journal.read, 1)
            self.assertRaises(JournalError, journal.read, 100)

    def test_compact(self):
        self.write(b"keep 1", b"drop 2", b"keep 3")
        dropped = compact(self.path, lambda data: data.startswith(b"keep"))
        self.assertEqual(dropped, 1)
        self.assertEqual(list(read_records(self.path)),
                         [b"keep 1", b"keep 3"])
        self.assertFalse(os.path.exists(self.path + ".new"))


class ScheduleTest(unittest.TestCase):

    def next(self, spec, *moment):
        return Schedule(spec).next_after(datetime(*moment))

    def test_next(self):
        self.assertEqual(self.next("*/15 * * * *", 2024, 3, 1, 10, 7),
                         datetime(2024, 3, 1, 10, 15))
        self.assertEqual(self.next("0 9 * * mon-fri", 2024, 3, 1, 9, 0),
                         datetime(2024, 3, 4, 9, 0))
        self.assertEqual(self.next("@yearly", 2024, 1, 1, 0, 0),
                         datetime(2025, 1, 1, 0, 0))

    def test_leap_day(self):
        self.assertEqual(self.next("0 0 29 2 *", 2096, 3, 1),
                         datetime(2104, 2, 29))

    def test_never(self):
        self.assertIsNone(self.next("0 0 30 2 *", 2024, 1, 1))

    def test_either_day_field(self):
        times = Schedule("0 0 13 * fri").upcoming(datetime(2024, 9, 10), 2)
        self.assertEqual(times, [datetime(2024, 9, 13),
                                 datetime(2024, 9, 20)])

    def test_bad_fields(self):
        for spec in ("* * * *", "60 * * * *", "*/0 * * * *", "5-1 * * * *",
                     "* * 0 * *", "* * * foo *"):
            with self.subTest(spec=spec):
                self.assertRaises(CronError, Schedule, spec)

    def test_read_table(self):
        lines = ["# backup", "", "30 2 * * * backup --all /home",
                 "@daily rotate"]
        commands = [command for _, command in read_table(lines)]
        self.assertEqual(commands, ["backup --all /home", "rotate"])
        with self.assertRaisesRegex(CronError, "line 1"):
            list(read_table(["61 * * * * true"]))


class DuplicatesTest(unittest.TestCase):

    def test_main(self):
        with tempfile.TemporaryDirectory() as top:
            for name, content in [("a", b"same"), ("b", b"other"),
                                  ("c", b"same"), ("d", b"")]:
                with open(os.path.join(top, name), "wb") as f:
                    f.write(content)
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                status = duplicates.main([top])
            self.assertEqual(status, 0)
            names = [os.path.basename(line)
                     for line in output.getvalue().split()]
            self.assertEqual(names, ["a", "c"])

    def test_parse_size(self):
        self.assertEqual(duplicates.parse_size("4k"), 4096)
        self.assertEqual(duplicates.parse_size("17"), 17)
        for text in ("", "k", "1.5M", "-1"):
            with self.subTest(text=text):
                self.assertRaises(Exception, duplicates.parse_size, text)


if __name__ == "__main__":
    unittest.main()
