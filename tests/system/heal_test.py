"""Message files that somebody removes or cuts in a cell of a real deployment: it is said, and they come back."""

import os
import pathlib
import re
import time
import unittest

from harness import TIME_FACTOR, SystemTest, Up, main, run

TWO_CELLS = """version: 1
clusters:
  - {name: here}
  - {name: there}
"""
ROUNDS = 75  # seconds: two rounds of looks (docs/ops/storage.md), and the copy
MESSAGES = b"".join(b"message %07d of the stream\n" % i for i in range(3000))


def wait(condition, timeout):
    end = time.monotonic() + timeout * TIME_FACTOR
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.2)  # between looks at another process' files and words
    return False


class Heal(SystemTest):
    def setUp(self):
        self.up = Up(TWO_CELLS, "--caches", "1", "--readers", "1", "--writers", "1")
        self.addCleanup(self.up.close)
        code, _, err = run("stream", "create", "--dir", self.up.dir, "--stream", "s", "--cluster", "here")
        self.assertEqual(code, 0, err)
        self.expected = b""
        for _ in range(3):  # each producer makes a file
            code, _, err = run("produce", "--dir", self.up.dir, "--stream", "s", stdin=MESSAGES)
            self.assertEqual(code, 0, err)
            self.expected += MESSAGES
            self.assertTrue(wait(lambda: self.consume("there")[:2] == (0, self.expected), 20))

    def consume(self, cell):
        return run("consume", "--dir", self.up.dir, "--cluster", cell, "--stream", "s", "--until-idle", "0.5")

    def pair(self, cell, seq):
        files = sorted(pathlib.Path(self.up.dir, cell, "store").glob(f"streams/s/*/00000/{seq:010d}-*"))
        self.assertEqual(len(files), 2, files)
        return files

    def remove(self, cell, seq):
        """Its names, and the hidden ones: all that `rm -r` of the folder would remove of it."""
        for name in self.pair(cell, seq):
            inode = name.stat().st_ino
            for entry in name.parent.iterdir():
                if entry.is_file() and (entry.stat().st_ino == inode or entry.name.startswith(f".{name.name}.")):
                    entry.unlink()

    def forget_caches(self, cell):
        """All of a cell's cache processes at once: each begins empty."""
        for pid in self.up.pids(cell, "cache").values():
            os.kill(pid, 9)

    def said(self, cell):
        """The line of `status` about the stream in the cell."""
        code, out, err = run("status", "--dir", self.up.dir)
        self.assertEqual(code, 0, err)
        block = re.split(r"(?m)^(?=\S)", out.decode())
        text = next(b for b in block if b.startswith(cell + " "))
        return next(line for line in text.splitlines() if line.startswith("  stream s/0"))

    def check_heals(self, words):
        self.forget_caches("there")
        code, out, err = self.consume("there")
        self.assertTrue(code == 1 or out == self.expected, "an end that is none: " + err)
        self.assertTrue(wait(lambda: "lacks file" in self.said("there"), ROUNDS), self.said("there"))
        self.assertTrue(wait(lambda: self.consume("there")[:2] == (0, self.expected), ROUNDS),
                        self.consume("there")[2])
        self.assertTrue(wait(lambda: "0 B behind the source" in self.said("there"), ROUNDS), self.said("there"))
        log = pathlib.Path(self.up.dir, "there", "log", "scheduler.log").read_text()
        self.assertRegex(log, words)
        above = pathlib.Path(self.up.dir, "here", "log", "scheduler.log").read_text()
        self.assertIn("cell there lacks file 2 of s/0, which it had: copying it again", above)

    def test_a_removed_file_comes_back_from_the_cell_above(self):
        self.remove("there", 2)
        self.assertIn("lacks file 2", self.said("there"), "at once: the folder shows it")
        self.check_heals("cell there lacks file 2 of s/0")

    def test_a_cut_file_is_set_aside_and_comes_back(self):
        data = self.pair("there", 2)[0]
        os.truncate(data, 4096 + 1000)
        self.check_heals(r"cell there lacks file 2 \(damaged\) of s/0")
        self.assertTrue(list(data.parent.glob(".aside/" + data.name + "*")))

    def test_what_the_source_lost_is_said_and_nobody_gets_around_it_in_silence(self):
        self.remove("here", 2)
        self.forget_caches("here")
        self.assertTrue(wait(lambda: "lacks file 2: removed or damaged at the source" in self.said("here"), ROUNDS),
                        self.said("here"))
        code, out, err = self.consume("here")
        self.assertEqual((code, out), (1, MESSAGES), err)
        self.assertIn("more was written", err)
        log = pathlib.Path(self.up.dir, "here", "log", "scheduler.log")
        self.assertTrue(wait(lambda: "at the stream's source" in log.read_text(), ROUNDS), log.read_text())
        self.assertEqual(self.consume("there")[:2], (0, self.expected))


if __name__ == "__main__":
    main()
