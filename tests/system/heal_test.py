"""Message files that somebody removes or cuts in a cell of a real deployment: it is said, and they come back."""

import os
import pathlib
import re
import time

from harness import TIME_FACTOR, SystemTest, Up, main, run

TWO_CELLS = """version: 1
clusters:
  - {name: here}
  - {name: there}
look_every_ms: 3000
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
    """One deployment with a stream for each kind of damage: the rounds of looks go on for all of them at once."""

    STREAMS = ("removed", "cut", "lost", "newest", "half")

    def setUp(self):
        self.up = Up(TWO_CELLS, "--caches", "1", "--readers", "1", "--writers", "1")
        self.addCleanup(self.up.close)
        for stream in self.STREAMS:
            code, _, err = run("stream", "create", "--dir", self.up.dir, "--stream", stream, "--cluster", "here")
            self.assertEqual(code, 0, err)
            for _ in range(3):  # each producer makes a file
                code, _, err = run("produce", "--dir", self.up.dir, "--stream", stream, stdin=MESSAGES)
                self.assertEqual(code, 0, err)
            self.assertTrue(wait(lambda s=stream: self.consume("there", s)[:2] == (0, 3 * MESSAGES), 20))

    def consume(self, cell, stream):
        return run("consume", "--dir", self.up.dir, "--cluster", cell, "--stream", stream, "--until-idle", "0.5")

    def pair(self, cell, stream, seq):
        files = sorted(pathlib.Path(self.up.dir, cell, "store").glob(f"streams/{stream}/*/00000/{seq:010d}-*"))
        self.assertEqual(len(files), 2, files)
        return files

    def remove(self, cell, stream, seq, of_pair=slice(2)):
        """Its names, and the hidden ones: all that `rm -r` of the folder would remove of it."""
        for name in self.pair(cell, stream, seq)[of_pair]:
            inode = name.stat().st_ino
            for entry in name.parent.iterdir():
                if entry.is_file() and (entry.stat().st_ino == inode or entry.name.startswith(f".{name.name}.")):
                    entry.unlink()

    def forget_caches(self, cell):
        """All of a cell's cache processes at once: each begins empty."""
        for pid in self.up.pids(cell, "cache").values():
            os.kill(pid, 9)

    def said(self, cell, stream):
        """What `status` says of the stream in the cell: what is not well, or else its row."""
        code, out, err = run("status", "--dir", self.up.dir, "--stream", stream)
        self.assertEqual(code, 0, err)
        lines = out.decode().splitlines()
        troubles = [line for line in lines if line.startswith(f"{cell}: stream {stream}/0 ")]
        rows = [line for line in lines if re.match(rf"  0 +{cell} ", line)]
        return (troubles or rows or [""])[0]

    def wait_for_words(self, cell, stream, words):
        self.assertTrue(wait(lambda: words in self.said(cell, stream), ROUNDS), self.said(cell, stream))

    def wait_for_log(self, cell, words):
        log = pathlib.Path(self.up.dir, cell, "log", "scheduler.log")
        self.assertTrue(wait(lambda: re.search(words, log.read_text()), ROUNDS), f"{words}: {log.read_text()}")

    def test_what_a_cell_lost_comes_back_and_what_the_source_lost_is_said(self):
        self.remove("there", "removed", 2)
        self.assertIn("lacks file 2", self.said("there", "removed"), "at once: the folder shows it")
        data = self.pair("there", "cut", 2)[0]
        os.truncate(data, 4096 + 1000)
        self.remove("here", "lost", 2)
        self.remove("here", "newest", 3)
        self.remove("here", "half", 3, slice(1, 2))  # the index
        self.forget_caches("there")
        self.forget_caches("here")
        for stream in ("removed", "cut"):
            code, out, err = self.consume("there", stream)
            self.assertTrue(code == 1 or out == 3 * MESSAGES, f"an end that is none, after {len(out)} of {3 * len(MESSAGES)} bytes, code {code}: {err}")

        # Both cells say what there was, and it comes back.
        self.wait_for_log("there", "cell there lacks file 2 of removed/0")
        self.wait_for_log("there", r"cell there lacks file 2 \(damaged\) of cut/0")
        for stream in ("removed", "cut"):
            self.wait_for_log("here", f"cell there lacks file 2 of {stream}/0, which it had: copying it again")
            self.assertTrue(wait(lambda s=stream: self.consume("there", s)[:2] == (0, 3 * MESSAGES), ROUNDS),
                            self.consume("there", stream)[2])
            self.wait_for_words("there", stream, " nothing ")
        self.assertTrue(list(data.parent.glob(".aside/" + data.name + "*")))

        # Nobody gets around what the source lost in silence; the other cell has it.
        self.wait_for_words("here", "lost", "lacks file 2: removed or damaged at the source")
        self.wait_for_log("here", "at the stream's source")
        code, out, err = self.consume("here", "lost")
        self.assertEqual((code, out), (1, MESSAGES), err)
        self.assertIn("more was written", err)
        self.assertEqual(self.consume("there", "lost")[:2], (0, 3 * MESSAGES))
        for stream in ("newest", "half"):
            self.wait_for_words("here", stream, "lacks file 3: removed or damaged at the source")
            code, out, err = self.consume("here", stream)
            self.assertEqual((code, out), (1, 2 * MESSAGES), err)
            self.assertIn("more was written", err)
            self.assertEqual(self.consume("there", stream)[:2], (0, 3 * MESSAGES))


if __name__ == "__main__":
    main()
