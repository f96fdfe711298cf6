"""What the cache's real cores do to one key must be a behaviour of Merge; with a planted bug it must not be."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

RUN_PY = pathlib.Path(__file__).resolve().parents[2] / "tla" / "run.py"
WRITER = os.environ["TAILCAST_MERGE_TRACES"]  # the program that writes the traces


class MergeTraces(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="tc-merge-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        subprocess.run([WRITER, "--gtest_brief=1"], check=True, timeout=60,
                       env={**os.environ, "TAILCAST_TRACE_DIR": folder.name})

    def check(self, name, expect):
        done = subprocess.run(
            [sys.executable, RUN_PY, "--scratch", os.path.join(self.folder, "tla"), "trace", "--spec", "Merge",
             "--trace", os.path.join(self.folder, f"merge-{name}.jsonl"), "--expect", expect],
            capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_a_ring_that_stays_is_a_behaviour(self):
        self.check("stays", "accept")

    def test_a_ring_that_changes_is_a_behaviour(self):
        self.check("changes", "accept")

    def test_a_ring_that_changes_in_part_is_a_behaviour(self):
        self.check("changes-in-part", "accept")

    def test_replicas_that_do_not_rest_are_refused(self):
        self.assertIn('{"event":"Rest"', self.check("bug-no-rest", "reject"))


if __name__ == "__main__":
    unittest.main()
