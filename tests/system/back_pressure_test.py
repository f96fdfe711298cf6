"""A cell whose disk is slower than what comes: `status` names the hop, the slow end and since when; other cells have the
stream as before; and nothing is missing there when the slowness has ended."""

import json
import os
import re
import subprocess
import unittest.mock

from harness import BINARY, TIME_FACTOR, SystemTest, Up, main, run, wait_until

# Both hang on the source, so that the slow one has nobody below it.
CELLS = """version: 1
clusters:
  - {name: source}
  - {name: slow}
  - {name: fast}
links:
  - {from: source, to: slow, usd_per_gb: 0.02, rtt_ms: 2, both: true}
  - {from: source, to: fast, usd_per_gb: 0.02, rtt_ms: 2, both: true}
  - {from: slow, to: fast, usd_per_gb: 1, rtt_ms: 2, both: true}
streams:
  - {name: s, source: source}
"""
RATE_MB = 2
FLUSH_MS = 700


class BackPressure(SystemTest):
    def load(self, *args):
        process = subprocess.Popen([BINARY, "load", *args, "--dir", self.up.dir, "--stream", "s"], stdout=subprocess.PIPE,
                                   text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def verdict(self, consumer, produced):
        """What the consumer says at its end, who got each message once and in order."""
        got = json.loads(consumer.communicate()[0].splitlines()[-1])
        self.assertEqual([got[key] for key in ("messages", "gaps", "repeats", "foreign", "error")],
                         [produced["messages"], 0, 0, 0, ""])
        return got

    def waits(self, cell):
        """What `status` says of the hop to the cell: how long it has waited, in seconds, and the whole line; or none."""
        code, out, err = run("status", "--dir", self.up.dir)
        self.assertEqual(code, 0, err)
        found = re.search(rf"source: (hop to {cell}, layer primary: waits for the (\w+) for (\d+) s.*)", out.decode())
        return found and (int(found[3]), found[2], found[1])

    def test_a_slow_disk_is_named_slows_nobody_else_and_loses_nothing(self):
        # Each append is flushed twice, data and index.
        with unittest.mock.patch.dict(os.environ, TAILCAST_FILE_FAULTS=f"flush:{FLUSH_MS}ms:1:/slow/store/streams/"):
            self.up = Up(CELLS, "--profile", "low-latency", "--caches", "1", "--readers", "1", "--writers", "1")
        self.addCleanup(self.up.close)
        consumer = self.load("consume", "--cluster", "fast", "--from", "beginning", "--until-idle", "5")
        self.assertEqual(json.loads(consumer.stdout.readline())["kind"], "ready")
        producer = self.load("produce", "--cluster", "source", "--mb-per-s", str(RATE_MB), "--seconds", "600")

        self.assertTrue(wait_until(lambda: self.waits("slow"), 60))
        seconds, end, line = self.waits("slow")
        self.assertEqual(end, "writer", line)
        self.assertIn("longest stream s; ", line)
        self.assertIn("the disk of slow (or its writer) is slower than what comes", line)
        self.assertTrue(wait_until(lambda: (self.waits("slow") or (0,))[0] >= seconds + 3), f"since when: {line}")
        self.assertIsNone(self.waits("fast"))

        producer.send_signal(2)
        produced = json.loads(producer.communicate()[0])
        self.assertEqual(produced["not_durable"], 0, produced)
        self.assertGreater(produced["held_mb_per_s"], 0.9 * RATE_MB, produced)
        delivered = self.verdict(consumer, produced)
        self.assertLess(delivered["delay_us"]["p99"], FLUSH_MS * 1000 * TIME_FACTOR, "as long as one flush of the slow disk")

        # The slowness ends.
        self.assertEqual(self.up.stop(), 0)
        self.up.start()
        self.verdict(self.load("consume", "--cluster", "slow", "--from", "beginning", "--until-idle", "10"), produced)
        self.assertIsNone(self.waits("slow"))


if __name__ == "__main__":
    main()
