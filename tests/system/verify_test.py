"""`tailcast verify`: a stream is the same in all cells, or the hop is named behind which it is not; and `tailcast
repair`, which has what is damaged copied again."""

import os
import pathlib
import re
import shutil
import subprocess
import unittest

from harness import BINARY, TIME_FACTOR, SystemTest, Up, main, run, wait_until

THREE = """version: 1
clusters: [{name: a}, {name: b}, {name: c}]
links:
  - {from: a, to: b}
  - {from: b, to: c}
look_every_ms: 3000
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
        code, _, err = run("produce", "--dir", self.up.dir, "--stream", "s", "--key", "1",
                           stdin=b"".join(b"%d\n" % i for i in range(1000)))  # closes the files before
        self.assertEqual(code, 0, err)
        self.assertEqual(run(*verify)[0], 0)
        repair = ("repair", "--dir", self.up.dir, "--stream", "s")
        code, out, err = run(*repair)
        self.assertEqual((code, out.count(b"4 files read, 0 damaged\n")), (0, 3), out.decode() + err)
        hidden = next(pathlib.Path(self.up.dir, "a", "store", "streams").rglob("*/0000000001-*.data"))
        hidden.rename(self.up.root + "/hidden")
        out = run(*repair, "--dry-run", "--cluster", "a")[1].decode()
        self.check_fails(1, ["without --dry-run"], *repair, "--dry-run", "--cluster", "a")
        self.check_fails(1, ["is the source of stream 's'"], *repair, "--cluster", "a")
        self.assertRegex(out, r"3 files read, 0 damaged, 1 not there\n  s/\d file 1: it, or a part of it, is not there")
        pathlib.Path(self.up.root + "/hidden").rename(hidden)
        self.flip("c")
        err = self.check_fails(1, ["the first hop of the copy tree that differs is b -> c: ", "check sum"], *verify)
        self.assertIn("`tailcast repair`", err)
        self.check_fails(1, ["without --dry-run"], *repair, "--dry-run")
        code, out, err = run(*repair, timeout=150 * TIME_FACTOR)
        self.assertEqual(code, 0, err)
        self.assertRegex(out.decode(), r"cell c: 4 files read, 1 damaged\n  s/\d file 1: the payload of message \d+ "
                                       r"fails its check sum\n  s/\d file 1: copied again\n")
        self.assertEqual(run(*verify)[0], 0)
        # Nobody has it whole any more: what is left of it stays where it is.
        self.flip("a")
        bad = self.flip("b")
        err = self.check_fails(1, ["is the source of stream 's'", "docs/ops/storage.md"], *repair)
        err = self.check_fails(1, ["stays as it is, because the cell above does not have it whole"], *repair,
                               "--cluster", "b")
        self.assertTrue(bad.exists())
        self.assertFalse(list(bad.parent.glob(".aside/*")), err)
        # Of another cell's store nothing is touched.
        registries = [pathlib.Path(self.up.dir, cell, "store", "registry") for cell in ("a", "b")]
        registries[1].rename(registries[1].with_name("its-own"))
        shutil.copytree(*registries)
        self.check_fails(1, ["is not the store of cell b", "another registry"], *repair, "--cluster", "b")

    def test_a_file_that_is_still_written_is_copied_again(self):
        self.assertEqual(run("stream", "create", "--dir", self.up.dir, "--cluster", "a", "--stream", "s")[0], 0)
        lines = [b"%d\n" % i for i in range(30000)]
        there = ("--dir", self.up.dir, "--stream", "s")
        producer = subprocess.Popen([BINARY, "produce", *there], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(producer.stderr.close)
        self.addCleanup(producer.kill)
        consumer = subprocess.Popen([BINARY, "consume", *there, "--cluster", "c", "--count", "30000"],
                                    stdout=subprocess.PIPE)
        self.addCleanup(consumer.stdout.close)
        self.addCleanup(consumer.kill)
        producer.stdin.write(b"".join(lines[:20000]))
        producer.stdin.flush()
        got = [consumer.stdout.readline() for _ in range(20000)]
        self.assertTrue(wait_until(lambda: lines[19999] in self.data("c").read_bytes()))
        self.flip("c")
        verify = ("verify", "--dir", self.up.dir, "--stream", "s")
        self.check_fails(1, ["check sum", "`tailcast repair`"], *verify)
        code, out, err = run("repair", "--dir", self.up.dir, "--stream", "s", timeout=150 * TIME_FACTOR)
        self.assertEqual(code, 0, err)
        self.assertRegex(out.decode(), r"cell c: 1 file read, 1 damaged\n(.*\n)*  s/0 file 1: copied again\n")
        producer.stdin.write(b"".join(lines[20000:]))
        producer.stdin.close()
        got += consumer.stdout.readlines()
        self.assertEqual(got, lines)
        self.assertEqual(producer.wait(), 0, producer.stderr.read())
        code, out, err = run(*verify)
        self.assertEqual((code, err), (0, ""), out)

    def data(self, cell):
        return max(pathlib.Path(self.up.dir, cell, "store", "streams", "s").rglob("*.data"),
                   key=lambda f: f.stat().st_size)

    def flip(self, cell):
        """A bit of the cell's disk, of which no cache has a copy."""
        for pid in self.up.pids(cell, "cache").values():
            os.kill(pid, 9)
        data = self.data(cell)
        whole = data.read_bytes()
        at = re.search(rb"\n1[0-9]{4}\n", whole).start() + 2
        with data.open("r+b") as file:
            file.seek(at)
            file.write(bytes([whole[at] ^ 1]))
        return data


if __name__ == "__main__":
    main()
