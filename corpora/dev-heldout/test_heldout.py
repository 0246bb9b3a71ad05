"""Unit tests for wordindex and logreport."""

import random
import unittest

from logreport import Entry, LineError, Summary, format_size
from wordindex import WordIndex


class WordIndexTest(unittest.TestCase):

    def setUp(self):
        self.words = ["test", "toaster", "toasting", "slow", "slowly", "to"]
        self.index = WordIndex((word, len(word)) for word in self.words)

    def test_get(self):
        for word in self.words:
            self.assertEqual(self.index[word], len(word))
        for word in ("", "t", "toast", "slowest", "x"):
            with self.subTest(word=word):
                self.assertNotIn(word, self.index)
                self.assertRaises(KeyError, self.index.__getitem__, word)

    def test_iteration_is_sorted(self):
        self.assertEqual(list(self.index), sorted(self.words))
        self.assertEqual(len(self.index), len(self.words))

    def test_replace(self):
        self.index["slow"] = "new"
        self.assertEqual(self.index["slow"], "new")
        self.assertEqual(len(self.index), len(self.words))

    def test_empty_key(self):
        self.index[""] = 0
        self.assertEqual(self.index[""], 0)
        self.assertEqual(self.index.longest_prefix("xyz"), ("", 0))
        del self.index[""]
        self.assertNotIn("", self.index)

    def test_with_prefix(self):
        def keys(prefix):
            return [key for key, value in self.index.with_prefix(prefix)]

        self.assertEqual(keys("toast"), ["toaster", "toasting"])
        self.assertEqual(keys("toa"), ["toaster", "toasting"])
        self.assertEqual(keys("slowly"), ["slowly"])
        self.assertEqual(keys(""), sorted(self.words))
        self.assertEqual(keys("toasts"), [])
        self.assertEqual(keys("z"), [])

    def test_longest_prefix(self):
        self.assertEqual(self.index.longest_prefix("slowness"), ("slow", 4))
        self.assertEqual(self.index.longest_prefix("toast"), ("to", 2))
        self.assertRaises(KeyError, self.index.longest_prefix, "tea")

    def test_against_dict(self):
        rng = random.Random(5)
        index, reference = WordIndex(), {}
        for step in range(3000):
            key = "".join(rng.choices("ab", k=rng.randrange(7)))
            if key in reference and rng.random() < 0.5:
                del index[key]
                del reference[key]
            else:
                index[key] = reference[key] = step
            self.assertEqual(len(index), len(reference))
        self.assertEqual(list(index.items()), sorted(reference.items()))
        for key in list(reference):
            del index[key]
        self.assertEqual(list(index), [])


class LogReportTest(unittest.TestCase):

    line = ('192.0.2.7 - %s [10/Oct/2023:13:55:36 +0200] '
            '"%s" %d %s "-" "Browser"')

    def test_entry(self):
        entry = Entry.from_line(
            self.line % ("anna", "GET /a?x=1 HTTP/1.1", 200, "2326"))
        self.assertEqual(entry.user, "anna")
        self.assertEqual(entry.path, "/a")
        self.assertEqual(entry.size, 2326)
        self.assertEqual(entry.time.utcoffset().total_seconds(), 7200)
        self.assertFalse(entry.is_error)

    def test_strange_requests(self):
        for request in ("", "-", "\\x16\\x03"):
            with self.subTest(request=request):
                entry = Entry.from_line(self.line % ("-", request, 400, "-"))
                self.assertEqual(entry.path, "")
                self.assertEqual(entry.size, 0)
                self.assertIsNone(entry.user)

    def test_malformed_line(self):
        with self.assertRaises(LineError):
            Entry.from_line("hello")
        with self.assertRaises(LineError):
            Entry.from_line('h - - [yesterday] "GET / HTTP/1.0" 200 1')

    def test_summary(self):
        summary = Summary()
        summary.read([
            self.line % ("-", "GET /a HTTP/1.1", 200, "1000"),
            self.line % ("-", "GET /a HTTP/1.1", 200, "1000"),
            self.line % ("-", "GET /b HTTP/1.1", 404, "-"),
            "nonsense",
            "",
        ])
        self.assertEqual(summary.requests, 3)
        self.assertEqual(summary.visitors, 1)
        self.assertEqual(summary.skipped, 1)
        self.assertEqual(summary.hours[13], 3)
        text = summary.format()
        self.assertIn("       2  /a\n", text)
        self.assertIn("       1  404 /b\n", text)

    def test_empty_summary(self):
        self.assertEqual(Summary().format(), "no requests")

    def test_format_size(self):
        self.assertEqual(format_size(0), "0 bytes")
        self.assertEqual(format_size(5 * 1024 ** 3), "5.0 GiB")


if __name__ == "__main__":
    unittest.main()
