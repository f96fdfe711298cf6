"""A cell's key: made by `up`, proven by everybody, and what is said to who has another one or none."""

import os
import pathlib
import stat
import subprocess
import tempfile

from harness import BINARY, ONE_CELL, TIME_FACTOR, SystemTest, Up, main, run

MESSAGES = b"".join(b"message %d\n" % i for i in range(500))


def consume(up, key=None):
    """All messages so far, by a consumer with another key file: (exit code, messages, what it said)."""
    environment = dict(os.environ)
    if key is not None:
        environment["TAILCAST_CELL_KEY"] = key
    done = subprocess.run([BINARY, "consume", "--dir", up.dir, "--cluster", "here", "--stream", "s",
                           "--from", "beginning", "--count", "500"],
                          capture_output=True, env=environment, timeout=60 * TIME_FACTOR)
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")


class CellKey(SystemTest):
    def start(self, topology):
        up = Up(topology)
        self.addCleanup(up.close)
        code, _, err = run("stream", "create", "--dir", up.dir, "--stream", "s")
        self.assertEqual(code, 0, err)
        code, _, err = run("produce", "--dir", up.dir, "--stream", "s", stdin=MESSAGES)
        self.assertEqual(code, 0, err)
        return up

    def test_up_makes_one_that_is_proven_and_who_has_another_is_told_so_on_both_ends(self):
        up = self.start(ONE_CELL)
        key = pathlib.Path(up.dir, "here", "cell.key")
        self.assertEqual(stat.S_IMODE(key.stat().st_mode), 0o600)
        self.assertEqual(consume(up)[:2], (0, MESSAGES))
        other = os.path.join(up.root, "other.key")
        code, _, err = run("key", other)
        self.assertEqual(code, 0, err)
        # It is let into no cache. The primary layer is another matter: it asks for no key of ours.
        code, got, said = consume(up, other)
        self.assertEqual((code, got), (0, MESSAGES), said)
        self.assertIn("proves another key than the one of this process", said)
        logs = "".join(p.read_text() for p in pathlib.Path(up.dir).glob("here/log/cache*.log"))
        self.assertEqual(logs.count(key.read_text().strip()), 0)
        # One without a key at all.
        code, got, said = consume(up, "none")
        self.assertEqual((code, got), (0, MESSAGES), said)
        self.assertIn("give it the key file of the server's cell (cell_key)", said)
        logs = "".join(p.read_text() for p in pathlib.Path(up.dir).glob("here/log/cache*.log"))
        self.assertIn("it has no key", logs)
        code, _, said = consume(up, "/nowhere/cell.key")
        self.assertEqual(code, 1, said)
        for word in ("/nowhere/cell.key", "TAILCAST_CELL_KEY", "copy it from another host"):
            self.assertIn(word, said)

    def test_a_cell_without_one_says_so_in_its_topology(self):
        up = self.start("version: 1\nclusters:\n  - {name: here, cell_key: none}\n")
        self.assertFalse(pathlib.Path(up.dir, "here", "cell.key").exists())
        self.assertEqual(consume(up)[:2], (0, MESSAGES))

    def test_a_key_that_others_can_read_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            key = os.path.join(folder, "cell.key")
            self.assertEqual(run("key", key)[0], 0)
            os.chmod(key, 0o644)
            topology = os.path.join(folder, "t.yaml")
            pathlib.Path(topology).write_text(f"version: 1\nclusters:\n  - {{name: here, cell_key: {key}}}\n")
            self.check_fails(1, [key, "0644", "chmod 600", "here"], "up", "--dir", folder + "/d",
                             "--topology", topology)


if __name__ == "__main__":
    main()
