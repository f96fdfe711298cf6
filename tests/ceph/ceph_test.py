"""What runs on a real Ceph cluster, which this test starts from Debian's packages and stops again.

TAILCAST_CEPH_FULL=1 (`./dev test full`) runs more rounds, and the suite with small objects, too.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "system"))
from harness import BINARY, TIME_FACTOR, SystemTest, Up, main, run  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "src/app/ceph_cluster.sh"
STORE_TEST = os.environ.get("TAILCAST_CEPH_STORE_TEST", "build/tests/ceph_store_test")
FULL = "TAILCAST_CEPH_FULL" in os.environ
ERROR_S = 5  # within which a configuration error is told

CELL = """version: 1
clusters:
  - {name: here}
streams:
  - {name: s, source: here}
"""


class Cluster:
    """Three OSDs on loopback, cephx on."""

    def __init__(self):
        self.root = tempfile.mkdtemp(prefix="tc-ceph-")
        self.dir = os.path.join(self.root, "c")
        self.conf = os.path.join(self.dir, "ceph.conf")
        self.script("start", "127.0.0.1", "3")

    def script(self, command, *args):
        done = subprocess.run([SCRIPT, command, self.dir, *args], capture_output=True, text=True, timeout=180)
        if done.returncode != 0:
            raise AssertionError(f"ceph_cluster.sh {command}: {done.stderr}")

    def ceph(self, *args):
        done = subprocess.run(["ceph", "-c", self.conf, "--connect-timeout", "30", *args],
                              capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise AssertionError(f"ceph {args}: {done.stderr}")
        return done.stdout

    def pid(self, daemon):
        return int(pathlib.Path(self.dir, "run", f"{daemon}.pid").read_text())

    def close(self):
        self.script("kill")
        shutil.rmtree(self.root)


def setUpModule():
    global cluster
    cluster = Cluster()
    unittest.addModuleCleanup(cluster.close)


class Producer:
    """`tailcast produce` of numbered lines, one every few milliseconds, until it is told to end."""

    def __init__(self, up):
        self.process = subprocess.Popen(
            [BINARY, "produce", "--dir", up.dir, "--stream", "s"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.count = 0
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self._write)
        self.thread.start()

    def _write(self):
        while not self.ending.wait(0.005):
            try:
                self.process.stdin.write(b"message %d\n" % self.count)
                self.process.stdin.flush()
            except BrokenPipeError:
                return
            self.count += 1

    def wait_for(self, count):
        end = time.monotonic() + 60 * TIME_FACTOR
        while self.count < count:
            if time.monotonic() > end or not self.thread.is_alive():
                raise AssertionError(f"the producer stands at {self.count}: {self.finish()}")
            time.sleep(0.01)

    def finish(self):
        """(exit code, what it said)."""
        self.ending.set()
        self.thread.join()
        _, err = self.process.communicate(timeout=120 * TIME_FACTOR)
        return self.process.returncode, err.decode()


class CephTest(SystemTest):
    def consumed(self, up, count):
        code, out, err = run("consume", "--dir", up.dir, "--cluster", "here", "--stream", "s", "--from", "beginning",
                             "--count", str(count), timeout=60)
        self.assertEqual(code, 0, err)
        return out.splitlines()

    def numbered(self, count):
        return [b"message %d" % n for n in range(count)]

    def test_the_port_s_suite_and_its_processes(self):
        cluster.script("pool", "suite")
        env = dict(os.environ, TAILCAST_CEPH_STORE=f"ceph:{cluster.conf}?pool=suite")
        what = "*" if FULL else "*/Plain:CephStore*"
        done = subprocess.run([STORE_TEST, "--gtest_brief=1", f"--gtest_filter={what}"], env=env,
                              capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout[-6000:] + done.stderr[-2000:])

    def test_a_cell_lives_through_the_death_of_an_osd_and_of_all(self):
        cluster.script("pool", "tailcast-here")
        up = Up(CELL, "--storage", f"ceph:{cluster.conf}", "--caches", "3", "--readers", "1", "--writers", "1")
        self.addCleanup(up.close)
        producer = Producer(up)
        producer.wait_for(100)
        os.kill(cluster.pid("osd.1"), signal.SIGKILL)
        producer.wait_for(producer.count + 400)
        code, said = producer.finish()
        self.assertEqual(code, 0, said)
        self.assertEqual(self.consumed(up, producer.count), self.numbered(producer.count))
        # Nothing is left but what lies on the disks.
        cluster.script("kill")
        cluster.script("start")
        self.assertEqual(self.consumed(up, producer.count), self.numbered(producer.count))

    def config(self, folder, store):
        path = os.path.join(folder, "p.yaml")
        pathlib.Path(path).write_text(f"version: 1\ncell: here\nname: writer-1\nscheduler: 127.0.0.1:1\n"
                                      f"cell_key: none\nstore: \"{store}\"\n")
        return path

    def test_what_is_wrong_is_told_within_seconds(self):
        cluster.script("pool", "mine", "other")
        cluster.script("key", "cell", "mine", "rw")
        with tempfile.TemporaryDirectory() as folder:
            conf = pathlib.Path(cluster.conf).read_text()
            nobody = os.path.join(folder, "nobody.conf")
            pathlib.Path(nobody).write_text("\n".join(
                "mon host = 127.0.0.1:9" if line.startswith("mon host") else line for line in conf.splitlines()) + "\n")
            stranger = os.path.join(folder, "stranger.conf")
            keyring = os.path.join(folder, "keyring")
            subprocess.run(["ceph-authtool", "--create-keyring", keyring, "--gen-key", "-n", "client.admin"],
                           check=True, capture_output=True)
            pathlib.Path(stranger).write_text("\n".join(
                f"keyring = {keyring}" if line.startswith("keyring") else line for line in conf.splitlines()) + "\n")
            for store, words in (
                    (f"ceph:{cluster.conf}?pool=none", ["no pool 'none'"]),
                    (f"ceph:{nobody}?pool=mine", ["no monitor", nobody]),
                    (f"ceph:{stranger}?pool=mine", ["refuses the cephx key of client.admin"]),
                    (f"ceph:{cluster.conf}?pool=mine&user=unknown", ["client.unknown"]),
                    (f"ceph:{cluster.conf}?pool=other&user=cell", ["does not allow it"]),
                    ("ceph:/nowhere/ceph.conf?pool=mine", ["/nowhere/ceph.conf"]),
            ):
                with self.subTest(store=store):
                    begun = time.monotonic()
                    err = self.check_fails(1, words, "run", "--role", "writer", "--config",
                                           self.config(folder, store))
                    self.assertLess(time.monotonic() - begun, ERROR_S * TIME_FACTOR, err)


if __name__ == "__main__":
    main()
