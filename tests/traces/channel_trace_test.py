"""What clients and servers of the fabric's message channels do must be a behaviour of Channel; with a planted bug
it must not be."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

RUN_PY = pathlib.Path(__file__).resolve().parents[2] / "tla" / "run.py"
WRITER = os.environ["TAILCAST_CHANNEL_TRACES"]  # the program that writes the traces


class ChannelTraces(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="tc-channel-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        subprocess.run([WRITER, "--gtest_brief=1"], check=True, timeout=60,
                       env={**os.environ, "TAILCAST_TRACE_DIR": folder.name})

    def check(self, name, expect):
        done = subprocess.run(
            [sys.executable, RUN_PY, "--scratch", os.path.join(self.folder, "tla"), "trace", "--spec", "Channel",
             "--trace", os.path.join(self.folder, f"channel-{name}.jsonl"), "--expect", expect],
            capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_rings_in_shared_memory_are_a_behaviour(self):
        self.check("shm", "accept")

    def test_frames_on_a_socket_are_a_behaviour(self):
        self.check("tcp", "accept")

    def test_the_simulated_fabric_is_a_behaviour(self):
        self.check("fake", "accept")

    def test_a_message_that_is_handled_twice_is_refused(self):
        self.assertIn('"event":"Handle"', self.check("bug-twice", "reject"))

    def test_a_message_that_is_handled_behind_a_closed_door_is_refused(self):
        self.assertIn('"event":"Handle"', self.check("bug-closed", "reject"))


if __name__ == "__main__":
    unittest.main()
