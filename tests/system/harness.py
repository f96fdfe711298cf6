"""What the system tests share: the binary, and a deployment of real processes in a temporary folder."""

import json
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

BINARY = os.environ.get("TAILCAST_BINARY", "build/tailcast")
# How many times longer things may take than in the dev preset: a sanitised binary is slow.
TIME_FACTOR = int(os.environ.get("TAILCAST_TIME_FACTOR", "1"))

# What the user who runs the tests has set up is nothing to them.
for name in ("TAILCAST_DIR", "TAILCAST_CELL", "TAILCAST_CONTEXT"):
    os.environ.pop(name, None)
os.environ["XDG_CONFIG_HOME"] = "/nonexistent"

ONE_CELL = """version: 1
clusters:
  - {name: here}
"""
NEAR_AND_FAR = """version: 1
clusters:
  - {name: near}
  - {name: far}
links:
  - {from: near, to: far, usd_per_gb: 0.02, rtt_ms: 2, both: true}
"""


def run(*args, stdin=b"", timeout=60):
    """Runs a command to its end: (exit code, stdout bytes, stderr text)."""
    done = subprocess.run([BINARY, *args], input=stdin, capture_output=True,
                          timeout=timeout * TIME_FACTOR)
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")


def output_of(*argv, timeout=60, **env):
    """What a program that must succeed writes to stdout, with `env` beside the environment."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout * TIME_FACTOR, env={**os.environ, **env})
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, argv))} ended with {done.returncode}: {done.stdout[-6000:]}{done.stderr[-4000:]}")
    return done.stdout


def wait_until(true, seconds=30):
    """Until `true()` is; returns whether it came to be."""
    end = time.monotonic() + seconds * TIME_FACTOR
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


class SmallDisk:
    """A mount of its own under the store of a cell that was not started yet."""

    def __init__(self, folder, mebibytes):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "none", folder], check=True,
                       capture_output=True)

    def fill(self):
        with open(self.folder / "filler", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(64 << 10))
            except OSError:
                pass

    def make_room(self):
        (self.folder / "filler").unlink()

    def fill_rest(self):
        """What is left when no long message is taken any more, and what those who try again give back meanwhile:
        nothing is free then, to anybody."""
        end = time.monotonic() + 3
        with open(self.folder / "filler", "wb", buffering=0) as file:
            while time.monotonic() < end:
                try:
                    file.write(bytes(4096))
                except OSError:
                    time.sleep(0.001)

    def free_bytes(self):
        room = os.statvfs(self.folder)
        return room.f_bavail * room.f_frsize

    def close(self):
        subprocess.run(["umount", "-l", self.folder], check=True)


class Up:
    """`tailcast up` in a folder of its own; stopped and removed by close()."""

    def __init__(self, topology=None, *options):
        self.root = tempfile.mkdtemp(prefix="tc-test-")
        self.dir = os.path.join(self.root, "d")
        args = [BINARY, "up", "--dir", self.dir, *options]
        if topology is not None:
            path = os.path.join(self.root, "topology.yaml")
            pathlib.Path(path).write_text(topology)
            args += ["--topology", path]
        self.args = args
        self.start()

    def start(self):
        """Runs it; again, after stop()."""
        self.said = []
        self.process = subprocess.Popen(self.args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.changed = threading.Condition()
        self.listener.start()
        line = self.process.stdout.readline()
        if line.strip() != "ready":
            self.process.wait(timeout=30 * TIME_FACTOR)
            self.listener.join(timeout=5)
            logs = "\n".join(f"{p}:\n{p.read_text()[-1500:]}"
                             for p in pathlib.Path(self.dir).glob("*/log/*.log"))
            raise AssertionError(f"up did not become ready: {self.said}\n{logs}")

    def _listen(self):
        for line in self.process.stderr:
            with self.changed:
                self.said.append(line.rstrip("\n"))
                self.changed.notify_all()

    def wait_for(self, text, timeout=10):
        """Until `up` said a line with this text; returns the line."""
        with self.changed:
            ok = self.changed.wait_for(lambda: any(text in s for s in self.said),
                                       timeout * TIME_FACTOR)
            if not ok:
                raise AssertionError(f"up never said {text!r}: {self.said}")
            return next(s for s in self.said if text in s)

    def status(self):
        code, out, err = run("status", "--dir", self.dir, "--json")
        if code != 0:
            raise AssertionError(err)
        return json.loads(out)

    def pids(self, cell, role):
        cells = {c["name"]: c for c in self.status()["cells"]}
        return {p["name"]: p["pid"] for p in cells[cell]["processes"] if p["role"] == role}

    def close(self, seconds=30):
        code = self.stop(seconds)
        self.remove()
        return code

    def remove(self):
        shutil.rmtree(self.root)

    def stop(self, seconds=30):
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(timeout=seconds * TIME_FACTOR)
        self.listener.join(timeout=5)
        self.process.stdout.close()
        self.process.stderr.close()
        return code


class SystemTest(unittest.TestCase):
    def check_fails(self, code, words, *args, stdin=b""):
        """The command ends with this exit code, and its error has all these words."""
        got, out, err = run(*args, stdin=stdin)
        self.assertEqual(got, code, err)
        for word in words:
            self.assertIn(word, err)
        return err


class OneCellTest(SystemTest):
    """Of a deployment of one cell, which runs as long as the class."""

    @classmethod
    def setUpClass(cls):
        cls.up = Up(ONE_CELL, "--profile", "low-latency")

    @classmethod
    def tearDownClass(cls):
        assert cls.up.close() == 0

    def create(self, name, *options):
        """Where it is, for other commands."""
        code, _, err = run("stream", "create", "--dir", self.up.dir, "--stream", name, *options)
        self.assertEqual(code, 0, err)
        return ["--dir", self.up.dir, "--stream", name]


def main():
    """unittest.main, which also fails if a sanitizer reported anything in any process of the tests.

    A process of a deployment that a sanitizer ended would only be started again.
    """
    with tempfile.TemporaryDirectory(prefix="tc-reports-") as folder:
        for name in ("ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"):
            os.environ[name] = f"{os.environ.get(name, '')} log_path={folder}/{name[:4].lower()}"
        passed = unittest.main(module="__main__", exit=False).result.wasSuccessful()
        reports = sorted(pathlib.Path(folder).iterdir())
        for report in reports:
            print(f"== {report.name}\n{report.read_text(errors='replace')}", file=sys.stderr)
    sys.exit(0 if passed and not reports else 1)
