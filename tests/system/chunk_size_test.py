"""A stream whose chunks are as large as fits its rate, with processes: files of different chunk sizes go through two
cells, and every command that reads them does."""

import json
import pathlib
import re
import subprocess
import time

from harness import BINARY, TIME_FACTOR, SystemTest, Up, main, run

TWO_CELLS = "version: 1\nclusters: [{name: here}, {name: there}]\n"
SLOW = [b"%06d" % i + b"s" * 93 + b"\n" for i in range(300)]
FAST = [b"%06d" % i + b"f" * 993 + b"\n" for i in range(12000)]


class ChunkSize(SystemTest):
    @classmethod
    def setUpClass(cls):
        cls.up = Up(TWO_CELLS, "--caches", "1", "--readers", "1", "--writers", "1")
        cls.addClassCleanup(cls.up.close)

    def create(self, stream, *options):
        code, _, err = run("stream", "create", "--dir", self.up.dir, "--cluster", "here", "--stream", stream, *options)
        self.assertEqual(code, 0, err)

    def sizes(self, cell, stream):
        """{sequence number: chunk size that the name says}"""
        found = {}
        for path in pathlib.Path(self.up.dir, cell).rglob(f"streams/{stream}/*/00000/[0-9]*.index"):
            name = re.fullmatch(r"(\d{10})-\d{19}-\d{16}-\d{14}(?:-(\d{5}))?\.index", path.name)
            self.assertTrue(name, path)
            found[int(name.group(1))] = int(name.group(2) or 0)
        return found

    def until(self, condition):
        end = time.monotonic() + 30 * TIME_FACTOR
        while not (seen := condition()):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        return seen

    def test_a_stream_whose_rate_jumps(self):
        self.create("s", "--file-bytes", "4KB")
        code, out, _ = run("stream", "describe", "--dir", self.up.dir, "--stream", "s", "--json")
        self.assertEqual((code, json.loads(out)["chunk_size_by_rate"]), (0, True))
        with subprocess.Popen([BINARY, "produce", "--dir", self.up.dir, "--stream", "s"],
                              stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as producer:
            for line in SLOW:
                producer.stdin.write(line)
                producer.stdin.flush()
                time.sleep(0.004)
            self.until(lambda: 512 in self.sizes("here", "s").values())
            code, _, err = run("stream", "retain", "--dir", self.up.dir, "--stream", "s", "--file-bytes", "2MB")
            self.assertEqual(code, 0, err)
            for line in FAST:
                producer.stdin.write(line)
            producer.stdin.close()
            self.assertEqual(producer.wait(timeout=60 * TIME_FACTOR), 0)
        sizes = self.sizes("here", "s")
        self.assertEqual(sizes[1], 4096, "nothing was known of the rate")
        self.assertGreaterEqual(max(sizes.values()), 16384, sizes)
        for cell in ("here", "there"):
            code, out, err = run("consume", "--dir", self.up.dir, "--cluster", cell, "--stream", "s", "--count",
                                 str(len(SLOW) + len(FAST)))
            self.assertEqual(code, 0, err)
            self.assertTrue(out == b"".join(SLOW + FAST), cell)
        self.until(lambda: self.sizes("there", "s") == sizes)
        code, out, err = run("verify", "--dir", self.up.dir, "--stream", "s")
        self.assertEqual(code, 0, out.decode() + err)
        newest = max(sizes)
        code, out, err = run("cache", "locate", "--dir", self.up.dir, "--cluster", "there", f"s/0/{newest}")
        self.assertEqual(code, 0, err)
        self.assertIn(f"chunks of {sizes[newest]}", " ".join(out.decode().split()))
        code, out, err = run("cache", "scan", "--dir", self.up.dir, "--cluster", "there", "--stream", "s", "--limit", "0")
        self.assertEqual(code, 0, err)
        self.assertIn(f"s/0/{newest}/0", out.decode())

    def test_a_stream_that_says_its_chunk_size_keeps_it(self):
        self.create("fixed", "--chunk-size", "1024", "--file-bytes", "4KB")
        lines = b"".join(SLOW)
        self.assertEqual(run("produce", "--dir", self.up.dir, "--stream", "fixed", stdin=lines)[0], 0)
        sizes = self.sizes("here", "fixed")
        self.assertGreater(len(sizes), 3)
        self.assertEqual(set(sizes.values()), {0})
        code, out, _ = run("cache", "locate", "--dir", self.up.dir, "--cluster", "here", "fixed/0/1")
        self.assertEqual(code, 0)
        self.assertIn("chunks of 1024", " ".join(out.decode().split()))


if __name__ == "__main__":
    main()
