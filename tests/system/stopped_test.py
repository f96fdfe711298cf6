"""Processes that stop (SIGSTOP) at a chosen system call, are fenced meanwhile, and are woken: what they still do must
change nothing. The producer and the writer, also in the middle of a roll-over."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import unittest

from harness import BINARY, TIME_FACTOR, SystemTest, Up, main, run, wait_until
from metrics_test import scrape

TWO_CELLS = """version: 1
clusters:
  - {name: here}
  - {name: there}
"""
# The nth such call of the process on the stream's files. A file holds some 200 messages, so that most of these lie in
# or beside a roll-over.
POINTS = [("write", 3), ("flush", 3), ("create", 3), ("create", 4), ("flush", 9)]
# Those of a writer that lie in an append; the others open a file, and then there may be nothing to append.
APPENDS = ["write-3", "flush-3"]
FILE_BYTES = ["--file-bytes", "20kb", "--max-shard-bytes", "100mb"]


def lines(who, count):
    return [b"%s %d %s\n" % (who, i, b"x" * 80) for i in range(count)]


def is_stopped(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


class Stopped(SystemTest):
    def up_with(self, faults=""):
        os.environ["TAILCAST_FILE_FAULTS"] = faults
        try:
            self.up = Up(TWO_CELLS, "--caches", "1", "--readers", "1", "--writers", "2", "--profile", "low-latency")
        finally:
            del os.environ["TAILCAST_FILE_FAULTS"]
        self.addCleanup(self.up.close)

    def create(self, stream):
        code, _, err = run("stream", "create", "--dir", self.up.dir, "--stream", stream, "--cluster", "here", *FILE_BYTES)
        self.assertEqual(code, 0, err)

    def check(self, stream, is_right):
        """That both cells hold this, the same, and that consumers get it."""
        code, out, err = run("verify", "--dir", self.up.dir, "--stream", stream)
        self.assertTrue(wait_until(lambda: run("verify", "--dir", self.up.dir, "--stream", stream)[0] == 0, 20),
                        f"{stream}: {out.decode()}{err}")
        for cell in ("here", "there"):
            code, out, err = run("consume", "--dir", self.up.dir, "--cluster", cell, "--stream", stream, "--to", "end")
            self.assertEqual(code, 0, err)
            is_right(out.splitlines(keepends=True))

    def test_a_producer_that_stops_and_is_taken_over_adds_nothing_when_it_is_woken(self):
        self.up_with()
        first, second = lines(b"first", 2000), lines(b"second", 600)
        for call, n in POINTS:
            stream = f"{call}-{n}"
            with self.subTest(stream):
                self.create(stream)
                produce = [BINARY, "produce", "--dir", self.up.dir, "--stream", stream, "--profile", "low-latency"]
                stopped = subprocess.Popen(
                    produce, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                    env=dict(os.environ, TAILCAST_FILE_FAULTS=f"{call}:stop:{n}:/here/store/streams/{stream}/"))
                self.addCleanup(stopped.kill)
                feeder = threading.Thread(target=self.feed, args=(stopped, first))
                feeder.start()
                self.assertTrue(wait_until(lambda: is_stopped(stopped.pid)), "it did not come to the call")
                code, _, err = run(*produce[1:], "--takeover", stdin=b"".join(second))
                self.assertEqual(code, 0, err)
                stopped.send_signal(signal.SIGCONT)
                feeder.join()
                self.assertEqual(stopped.wait(timeout=30 * TIME_FACTOR), 1)
                said = stopped.stderr.read().decode()
                stopped.stderr.close()
                stopped.stdout.close()
                self.assertIn("another producer took it over", said)
                durable = int(re.search(r"(\d+) messages? durable", said).group(1))

                def is_right(got):
                    kept = len(got) - len(second)
                    self.assertEqual(got, first[:kept] + second)
                    # Of what it calls unknown some may be there.
                    self.assertTrue(kept == durable or kept > durable and "unknown (may" in said, f"{kept} kept: {said}")
                self.check(stream, is_right)

    def feed(self, process, messages):
        try:
            for message in messages:
                process.stdin.write(message)
            process.stdin.close()
        except BrokenPipeError:
            pass  # it has ended, as it should

    def test_a_writer_that_stops_and_is_replaced_adds_nothing_when_it_is_woken(self):
        messages = lines(b"message", 2000)
        tokens = tempfile.mkdtemp(prefix="tc-test-")
        self.addCleanup(shutil.rmtree, tokens)
        # Of the two writers the first one that comes to the call, and never the one that replaces it.
        self.up_with(",".join(f"{call}:stop:{n + 2}:/there/store/streams/{call}-{n}/:{tokens}/{call}-{n}"
                              for call, n in POINTS))
        for call, n in POINTS:
            stream = f"{call}-{n}"
            with self.subTest(stream):
                self.create(stream)
                writers = self.writers()
                producer = subprocess.Popen([BINARY, "produce", "--dir", self.up.dir, "--stream", stream, "--rate", "1000"],
                                            stdin=subprocess.PIPE, stderr=subprocess.PIPE)
                self.addCleanup(producer.kill)
                feeder = threading.Thread(target=self.feed, args=(producer, messages))
                feeder.start()
                token = pathlib.Path(tokens, stream)
                self.assertTrue(wait_until(lambda: token.exists() and token.read_text()), "no writer came to the call")
                pid = int(token.read_text())
                self.addCleanup(os.kill, pid, signal.SIGCONT)
                self.assertIn(pid, writers)
                feeder.join()
                self.assertEqual(producer.wait(), 0, producer.stderr.read())
                producer.stderr.close()

                # The other one copies all of it to the disk while this one sleeps.
                copied = self.on_disk("here", stream)
                self.assertRegex(copied, r"^(12|13|14) files read, 0 damaged\n$")
                self.assertTrue(wait_until(lambda: self.on_disk("there", stream) == copied, 20), self.on_disk("there", stream))
                self.assertTrue(is_stopped(pid))
                os.kill(pid, signal.SIGCONT)
                if stream in APPENDS:
                    fenced = lambda page: page.value("tailcast_storage_appends_total", outcome="fenced")
                    self.assertTrue(wait_until(lambda: fenced(self.writers()[pid]) > fenced(writers[pid]), 20),
                                    "its append was not refused")
                self.check(stream, lambda got: self.assertEqual(got, messages))
                self.assertEqual(self.on_disk("there", stream), copied)

    def writers(self):
        """Their metrics, by process id."""
        cells = {c["name"]: c for c in self.up.status()["cells"]}
        return {p["pid"]: scrape(p["metrics"]) for p in cells["there"]["processes"] if p["role"] == "writer"}

    def on_disk(self, cell, stream):
        """What the cell's own files hold of the stream, whatever its cache has: files that are whole, damaged, not there."""
        code, out, err = run("repair", "--dry-run", "--dir", self.up.dir, "--cluster", cell, "--stream", stream)
        self.assertEqual(code, 0, err)
        return out.decode().removeprefix(f"cell {cell}: ")


if __name__ == "__main__":
    main()
