"""`tailcast verify`: a stream is the same in all cells, or the hop is named behind which it is not."""

import os
import pathlib
import re
import unittest

from harness import SystemTest, Up, main, run

THREE = """version: 1
clusters: [{name: a}, {name: b}, {name: c}]
links:
  - {from: a, to: b}
  - {from: b, to: c}
"""


class Verify(SystemTest):
    def setUp(self):
        self.up = Up(THREE, "--caches", "1", "--readers", "1", "--writers", "1", "--profile", "low-latency")
        self.addCleanup(self.up.close)

    def test_cells_are_the_same_until_a_byte_is_not(self):
        self.check_fails(1, ["no stream 'none'"], "verify", "--dir", self.up.dir, "--stream", "none")
        code, _, err = run("stream", "create", "--dir", self.up.dir, "--cluster", "a", "--stream", "s", "--shards", "2")
        self.assertEqual(code, 0, err)
        verify = ("verify", "--dir", self.up.dir, "--stream", "s")
        code, out, err = run(*verify)
        self.assertEqual((code, err), (0, ""), out)
        self.assertIn(b"stream s: 0 messages", out)
        code, _, err = run("produce", "--dir", self.up.dir, "--stream", "s", "--key", "1",
                           stdin=b"".join(b"%d\n" % i for i in range(50000)))
        self.assertEqual(code, 0, err)
        code, out, err = run(*verify)
        self.assertEqual((code, err), (0, ""), out)
        self.assertRegex(out.decode(), r"stream s: 50000 messages, 288.9 KB in 2 shards, from a\n"
                                       r"  a -> b +the same\n  b -> c +the same\n")
        # One byte of one cell's disk, of which no cache has a copy.
        for pid in self.up.pids("c", "cache").values():
            os.kill(pid, 9)
        data = max(pathlib.Path(self.up.dir, "c", "store", "streams", "s").rglob("*.data"), key=lambda f: f.stat().st_size)
        whole = data.read_bytes()
        at = re.search(rb"\n1[0-9]{4}\n", whole).start() + 2
        with data.open("r+b") as file:
            file.seek(at)
            file.write(bytes([whole[at] ^ 1]))
        err = self.check_fails(1, ["the first hop of the copy tree that differs is b -> c: "], *verify)
        self.assertIn("check sum", err)


if __name__ == "__main__":
    main()
