"""A data cache that is too small for a minute of its streams is said: at `up` and `stream create`, where the rate is
known, and in `status`, where it is measured."""

import re
import time

from harness import TIME_FACTOR, SystemTest, Up, main, run

# 64 Mbit/s: 8 MB a second, of which a minute is 480 MB.
ONE_CELL = """version: 1
clusters: [{name: here}]
streams:
  - {name: planned, source: here, rate_mbps: 64}
"""
SMALL = ("--caches", "1", "--readers", "1", "--writers", "1", "--data-cache-bytes", "8MB")
HOLDS = r"the data cache holds (\d+) (ms|s) of the [0-9.]+ .B/s of chunks that come, [0-9.]+ .B/s of them stream (\w+), " \
        r"and should hold 60 s"


class CacheRoom(SystemTest):
    @classmethod
    def setUpClass(cls):
        cls.up = Up(ONE_CELL, *SMALL)
        cls.addClassCleanup(cls.up.close)

    def create(self, stream, *options):
        code, out, err = run("stream", "create", "--dir", self.up.dir, "--stream", stream, *options)
        self.assertEqual(code, 0, err)
        self.assertIn(stream, out.decode())
        return err

    def test_up_says_it_of_the_rates_of_its_topology(self):
        said = self.up.wait_for("warning: cell here, at the rates of the topology: ")
        self.assertEqual(re.search(HOLDS, said).groups()[1:], ("ms", "planned"))

    def test_create_says_it_of_the_rate_that_is_expected_and_creates_all_the_same(self):
        said = self.create("fast", "--expect-rate", "1MB")
        self.assertRegex(said, r"warning: cell here, with 1\.0 MB/s of stream fast: " + HOLDS)
        self.assertEqual(self.create("slow", "--expect-rate", "10KB"), "")
        self.assertEqual(self.create("unknown"), "")

    def test_status_says_it_of_the_rate_that_is_measured_and_which_stream_it_is(self):
        self.create("idle")
        self.create("measured")
        code, _, err = run("produce", "--dir", self.up.dir, "--stream", "measured",
                           stdin=(b"x" * 999 + b"\n") * 8000)
        self.assertEqual(code, 0, err)
        end = time.monotonic() + 8 * TIME_FACTOR  # it was written in the newest ten seconds
        while True:
            _, out, _ = run("status", "--dir", self.up.dir)
            found = re.search(HOLDS, " ".join(out.decode().split()))
            if found or time.monotonic() > end:
                break
        self.assertTrue(found, out.decode())
        self.assertEqual(found.group(3), "measured")


if __name__ == "__main__":
    main()
