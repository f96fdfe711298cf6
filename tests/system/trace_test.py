"""Real processes, checked against the models: a small demo logs its steps, and the logs of all its
processes, merged by the host's monotonic clock, are behaviours of DuelingWriters and Locks."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from harness import BINARY, TIME_FACTOR, main

RUN_PY = pathlib.Path(__file__).resolve().parents[2] / "tla" / "run.py"


class Traces(unittest.TestCase):
    def check_demo(self, *options):
        with tempfile.TemporaryDirectory(prefix="tc-traces-") as folder:
            path = os.path.join(folder, "input")
            with open(path, "wb") as out:
                for number in range(3000):
                    out.write(b"%d %s\n" % (number, b"x" * (number % 97)))
            traces = os.path.join(folder, "traces")
            done = subprocess.run(
                [BINARY, "demo", "--input", path, "--json", "--roll-bytes", "50000", "--mb-per-s", "0.1",
                 "--trace-dir", traces, *options],
                capture_output=True, text=True, timeout=110 * TIME_FACTOR)
            self.assertEqual(done.returncode, 0, done.stderr + "\n".join(done.stdout.splitlines()[-3:]))
            # Readers have no steps of a model; everybody else does.
            logs = "\n".join(sorted(os.listdir(traces)))
            for process in ("us-central.client.", "asia-east.client.", "europe-west.writer-1.",
                            "us-central.scheduler."):
                self.assertIn(process, logs)
            checked = subprocess.run(
                [sys.executable, RUN_PY, "--scratch", os.path.join(folder, "tla"), "log", "--events",
                 "10000", traces], capture_output=True, text=True, timeout=600)
            self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
            for spec in ("DuelingWriters", "Locks"):
                accepted, of = map(int, re.search(rf"{spec}: (\d+) of (\d+) traces accepted",
                                                  checked.stdout).groups())
                self.assertEqual(accepted, of)
                # How long a trace gets is the machine's: on a busy one three had 2,483 events.
                self.assertGreater(of, 3, checked.stdout)

    def test_a_demo_is_a_behaviour(self):
        self.check_demo()

    def test_a_demo_whose_writer_is_killed_is_a_behaviour(self):
        self.check_demo("--kill", "writer")


if __name__ == "__main__":
    main()
