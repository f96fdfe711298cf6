"""Disks that report success and keep nothing of it, under a real deployment: what they lost of acknowledged messages is
told, and, wherever a cell above has it, set aside and copied again."""

import os
import pathlib
import re
import unittest.mock

from harness import SystemTest, Up, main, run, wait_until

TWO_CELLS = """version: 1
clusters:
  - {name: here}
  - {name: there}
look_every_ms: 3000
"""
FILES = 8
ROUNDS = 75  # seconds: two rounds of looks (docs/ops/storage.md), and the copy


def part(number):
    return b"".join(b"message %d of file %d\n" % (i, number) for i in range(1000))


ALL = b"".join(part(n) for n in range(FILES))


class LostWrites(SystemTest):
    def up_with(self, faults):
        with unittest.mock.patch.dict(os.environ, TAILCAST_FILE_FAULTS=faults):
            self.up = Up(TWO_CELLS, "--caches", "1", "--readers", "1", "--writers", "1", "--profile", "low-latency")
        self.addCleanup(self.up.close)

    def create(self, stream):
        code, _, err = run("stream", "create", "--dir", self.up.dir, "--stream", stream, "--cluster", "here")
        self.assertEqual(code, 0, err)

    def produce(self, stream, messages, faults=""):
        with unittest.mock.patch.dict(os.environ, TAILCAST_FILE_FAULTS=faults):
            return run("produce", "--dir", self.up.dir, "--stream", stream, stdin=messages)

    def consume(self, cell, stream):
        code, out, err = run("consume", "--dir", self.up.dir, "--cluster", cell, "--stream", stream,
                             "--until-idle", "1")
        return code, out, err

    def wait_for(self, cell, stream, messages):
        self.assertTrue(wait_until(lambda: self.consume(cell, stream)[:2] == (0, messages), ROUNDS),
                        self.consume(cell, stream)[2])

    def wait_for_words(self, words):
        def status():
            return run("status", "--dir", self.up.dir)[1].decode()
        self.assertTrue(wait_until(lambda: words in status(), ROUNDS), status())

    def logs(self, cell, role):
        return "".join(p.read_text() for p in pathlib.Path(self.up.dir, cell, "log").glob(f"{role}*.log"))

    def begin_anew(self):
        """Without caches, and without what the system still knew of the files."""
        self.assertEqual(self.up.stop(), 0)
        self.up.start()

    def test_what_a_copy_lost_is_told_and_copied_again(self):
        # Where the newest append is lost opening the file tells it; where one before it is, whoever reads it.
        self.up_with("flush:lost:0.3:/there/store/streams/s/,write:lost:0.25:/there/store/streams/t/")
        for stream in ("s", "t"):
            self.create(stream)
            for n in range(FILES):
                code, _, err = self.produce(stream, part(n))
                self.assertEqual(code, 0, err)
            self.wait_for("there", stream, ALL)  # from its caches
            self.assertIn(f"streams/{stream}/", "".join(re.findall("lost: .*", self.logs("there", "writer"))))
        self.begin_anew()
        for stream in ("s", "t"):
            code, out, err = self.consume("there", stream)
            self.assertTrue(code == 1 or out == ALL, f"{len(out)} of {len(ALL)} bytes, code {code}: {err}")
            self.assertTrue(ALL.startswith(out), "other bytes than were published")
        for stream in ("s", "t"):
            code, out, err = run("repair", "--dir", self.up.dir, "--stream", stream, timeout=180)
            self.assertEqual(code, 0, err + out.decode())
            self.wait_for("there", stream, ALL)
        self.assertTrue(list(pathlib.Path(self.up.dir, "there", "store", "streams").rglob(".aside/*")))

    def test_what_the_source_lost_is_told_to_whoever_reads_or_goes_on(self):
        self.up_with("")
        for stream, lost in (("data", ".data"), ("index", ".index")):
            self.create(stream)
            self.assertEqual(self.produce(stream, part(0))[0], 0)
            code, _, err = self.produce(stream, part(1), f"flush:lost:1:{lost}")
            self.assertEqual(code, 0, err)
            self.assertRegex(err, rf"lost: flush .*{lost}")
            self.wait_for("there", stream, part(0) + part(1))  # from the caches
        self.begin_anew()
        for stream in ("data", "index"):
            code, out, err = self.consume("here", stream)
            self.assertEqual((code, out), (1, part(0)), err)
            self.assertIn("were acknowledged, and not all of them are there", err)
            code, _, err = self.produce(stream, part(2))
            self.assertEqual(code, 1, err)
            self.assertRegex(err, rf"00000/0000000002-\S*\.{stream}: its first \d+ bytes were acknowledged, and not all of them are there")
            self.wait_for("there", stream, part(0) + part(1))
            self.wait_for_words(f"here: stream {stream}/0 lacks file 2 (damaged): removed or damaged at the source")


if __name__ == "__main__":
    main()
