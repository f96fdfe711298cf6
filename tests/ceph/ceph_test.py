"""What runs on a real Ceph cluster, which this test starts from Debian's packages and stops again.

TAILCAST_CEPH_FULL=1 (`./dev test full`) runs more rounds, the suite with small objects, and what is
marked so here, too.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "system"))
from harness import BINARY, NEAR_AND_FAR, TIME_FACTOR, SystemTest, Up, main, output_of, run, wait_until  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "src/app/ceph_cluster.sh"
STORE_TEST = os.environ.get("TAILCAST_CEPH_STORE_TEST", "build/tests/ceph_store_test")
FULL = "TAILCAST_CEPH_FULL" in os.environ
ERROR_S = 5  # within which a configuration error is told
# Longer than clients of Ceph wait for an answer of their monitor, 30 s.
MONITORS_AWAY_S = 40
# What `up` takes to end its cells and then its cluster.
UP_ENDS_S = 90
# After SIGTERM, whatever the cluster does: a producer goes on for 8 s to get its acknowledgements.
PRODUCER_ENDS_S = 10
PROCESS_ENDS_S = 8

CELL = """version: 1
clusters:
  - {name: %s}
streams:
  - {name: s, source: %s}
"""


class Cluster:
    """Three OSDs on loopback, cephx on."""

    def __init__(self):
        self.root = tempfile.mkdtemp(prefix="tc-ceph-")
        self.dir = os.path.join(self.root, "c")
        self.conf = os.path.join(self.dir, "ceph.conf")
        self.script("start", "127.0.0.1", "3")

    def script(self, command, *args):
        output_of(SCRIPT, command, self.dir, *args, timeout=180)

    def ceph(self, *args):
        return output_of("ceph", "-c", self.conf, "--connect-timeout", "30", *args)

    def restart(self):
        """All daemons, after kill -9."""
        self.script("kill")
        self.script("start")

    def pid(self, daemon):
        return int(pathlib.Path(self.dir, "run", f"{daemon}.pid").read_text())

    def close(self):
        self.script("kill")
        shutil.rmtree(self.root)


def processes_of(folder):
    """{process id: command line} of those whose command line names the folder."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has ended
        if folder in line:
            found[int(path.parent.name)] = line
    return found


class Deployment:
    """`tailcast up --storage ceph`: two cells with a link, on a cluster that it starts."""

    FILE_BYTES = 256 << 10

    def __init__(self):
        self.up = Up(NEAR_AND_FAR, "--storage", "ceph", "--caches", "3", "--readers", "1", "--writers", "1")
        self.conf = os.path.join(self.up.dir, "ceph", "ceph.conf")

    def tailcast(self, *words, stdin=b""):
        """What a command that must succeed writes to stdout; `words` begins with its name, of one word or two."""
        code, out, err = run(*words, "--dir", self.up.dir, "--stream", "s", stdin=stdin, timeout=120)
        if code != 0:
            raise AssertionError(f"{words}: {err}")
        return out

    def rados(self, cell, *words):
        return output_of("rados", "-c", self.conf, "-p", f"tailcast-{cell}", *words).splitlines()

    def files(self, cell):
        """The numbers of the stream's data files in the cell's pool."""
        folders = [name for name in self.rados(cell, "ls") if re.fullmatch(r"d:streams/s/[^/]+/00000", name)]
        return sorted(int(match.group(1)) for folder in folders for key in self.rados(cell, "listomapkeys", folder)
                      if (match := re.fullmatch(r"f:(\d{10}).*\.data", key)))

    def manifests(self, cell):
        """How many files of any kind the pool has objects of."""
        return sum(name.endswith(".m") for name in self.rados(cell, "ls"))

    def remove(self):
        """Whatever of it is left, after a test that failed."""
        for pid in processes_of(self.up.root):
            os.kill(pid, signal.SIGKILL)
        self.up.process.wait()
        self.up.listener.join()
        self.up.process.stdout.close()
        self.up.process.stderr.close()
        shutil.rmtree(self.up.root, ignore_errors=True)


def setUpModule():
    global cluster
    cluster = Cluster()
    unittest.addModuleCleanup(cluster.close)


class Said:
    """What a process says on stderr, as it says it."""

    def __init__(self, process):
        self.process = process
        self.lines = []
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def _listen(self):
        for line in self.process.stderr:
            with self.changed:
                self.lines.append(line.decode(errors="replace").rstrip("\n"))
                self.changed.notify_all()

    def wait_for(self, text, seconds=60):
        with self.changed:
            if not self.changed.wait_for(lambda: any(text in line for line in self.lines), seconds * TIME_FACTOR):
                raise AssertionError(f"never said {text!r}: {self.lines}")

    def close(self):
        self.thread.join()
        self.process.stderr.close()

    def all(self):
        """When the process has ended."""
        self.thread.join(timeout=5)
        return "\n".join(self.lines)


class Producer:
    """`tailcast produce` of numbered lines, one every few milliseconds, until it is told to end."""

    def __init__(self, up):
        self.process = subprocess.Popen(
            [BINARY, "produce", "--dir", up.dir, "--stream", "s"], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.said = Said(self.process)
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
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.wait(timeout=120 * TIME_FACTOR)
        return self.process.returncode, self.said.all()

    def kill(self):
        self.ending.set()
        self.process.kill()
        self.thread.join()
        self.process.wait()
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.said.close()


class Consumer:
    """`tailcast consume` from the beginning, and when each message came."""

    def __init__(self, up, cell, *options):
        self.process = subprocess.Popen(
            [BINARY, "consume", "--dir", up.dir, "--cluster", cell, "--stream", "s", "--from", "beginning", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.said = Said(self.process)
        self.messages = []
        self.longest_s = 0.0  # between two messages
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        last = None
        for line in self.process.stdout:
            now = time.monotonic()
            if last is not None:
                self.longest_s = max(self.longest_s, now - last)
            last = now
            self.messages.append(line.rstrip(b"\n"))

    def kill(self):
        self.process.kill()
        self.thread.join()
        self.process.wait()
        self.process.stdout.close()
        self.said.close()


class CephTest(SystemTest):
    def consumed(self, up, count, cell="here"):
        code, out, err = run("consume", "--dir", up.dir, "--cluster", cell, "--stream", "s", "--from", "beginning",
                             "--count", str(count), timeout=90)
        self.assertEqual(code, 0, err)
        return out.splitlines()

    def numbered(self, count):
        return [b"message %d" % n for n in range(count)]

    def up(self, cell):
        """A cell whose pool is new."""
        cluster.script("pool", f"tailcast-{cell}")
        up = Up(CELL % (cell, cell), "--storage", f"ceph:{cluster.conf}", "--caches", "3", "--readers", "1",
                "--writers", "1")
        self.addCleanup(up.close)
        return up

    def producer(self, up):
        producer = Producer(up)
        self.addCleanup(producer.kill)
        return producer

    def consumer(self, up, cell, *options):
        consumer = Consumer(up, cell, *options)
        self.addCleanup(consumer.kill)
        return consumer

    def no_process_was_ended(self, up):
        """By a signal: none crashed, and none had to be killed."""
        self.assertFalse([line for line in up.said if "was killed by signal" in line], up.said)

    def logs(self, up):
        return "".join(p.read_text(errors="replace") for p in pathlib.Path(up.dir).glob("*/log/*.log"))

    def store_test(self, pool, which):
        cluster.script("pool", pool)
        output_of(STORE_TEST, "--gtest_brief=1", f"--gtest_filter={which}", timeout=600,
                  TAILCAST_CEPH_STORE=f"ceph:{cluster.conf}?pool={pool}",
                  TAILCAST_CEPH_RUN_DIR=os.path.join(cluster.dir, "run"))

    def test_the_port_s_suite_and_its_processes(self):
        self.store_test("suite", "*:-*Troubles*" if FULL else "*/Plain:CephStore*:-*Troubles*")

    def test_the_port_on_a_cluster_that_fails(self):
        self.store_test("troubles", "CephStoreTroubles*")

    def test_a_cell_lives_through_the_death_of_an_osd_and_of_all(self):
        up = self.up("here")
        producer = self.producer(up)
        consumer = self.consumer(up, "here")
        producer.wait_for(100)
        os.kill(cluster.pid("osd.1"), signal.SIGKILL)
        producer.wait_for(producer.count + (2000 if FULL else 400))
        print(f"an OSD of three was killed under load: the longest stall was {consumer.longest_s:.1f} s",
              file=sys.stderr)
        # All die under load, and come back.
        cluster.restart()
        producer.wait_for(producer.count + 400)
        code, said = producer.finish()
        self.assertEqual(code, 0, said)
        self.assertEqual(self.consumed(up, producer.count), self.numbered(producer.count))
        self.assertTrue(wait_until(lambda: len(consumer.messages) == producer.count), consumer.said.lines)
        self.assertEqual(consumer.messages, self.numbered(producer.count))
        # Nothing is left but what lies on the disks.
        cluster.restart()
        self.assertEqual(self.consumed(up, producer.count), self.numbered(producer.count))
        self.no_process_was_ended(up)

    def test_a_full_pool_is_told_and_nothing_is_lost(self):
        up = self.up("full")
        producer = self.producer(up)
        producer.wait_for(100)
        cluster.ceph("osd", "pool", "set-quota", "tailcast-full", "max_objects", "1")
        producer.said.wait_for("the pool is full")
        written = producer.count
        # What was acknowledged is there to be read meanwhile.
        self.assertEqual(self.consumed(up, 100, "full"), self.numbered(100))
        cluster.ceph("osd", "pool", "set-quota", "tailcast-full", "max_objects", "0")
        producer.wait_for(written + 300)
        code, said = producer.finish()
        self.assertEqual(code, 0, said)
        self.assertEqual(self.consumed(up, producer.count, "full"), self.numbered(producer.count))
        self.no_process_was_ended(up)

    def test_a_pool_that_is_deleted_under_a_running_stream_is_told(self):
        up = self.up("doomed")
        producer = self.producer(up)
        consumer = self.consumer(up, "doomed")
        self.assertTrue(wait_until(lambda: len(consumer.messages) > 100), consumer.said.lines)
        cluster.ceph("osd", "pool", "delete", "tailcast-doomed", "tailcast-doomed", "--yes-i-really-really-mean-it")
        producer.said.wait_for("the pool is gone")
        self.assertTrue(wait_until(lambda: "the pool is gone" in self.logs(up)), self.logs(up)[-4000:])
        # A reader that begins now is told so, and does not get an empty stream.
        code, out, err = run("consume", "--dir", up.dir, "--cluster", "doomed", "--stream", "s", "--from", "beginning",
                             "--until-idle", "5")
        self.assertNotEqual(code, 0, out)
        self.assertIn("no pool 'tailcast-doomed'", err)
        self.no_process_was_ended(up)
        self.assertIsNone(consumer.process.poll(), consumer.said.lines)

    def test_a_key_that_is_revoked_under_a_running_cell_is_told(self):
        # A key is asked for again when its ticket has expired: in an hour, unless told.
        cluster.ceph("config", "set", "global", "auth_service_ticket_ttl", "10")
        self.addCleanup(cluster.ceph, "config", "rm", "global", "auth_service_ticket_ttl")
        cluster.restart()
        cluster.script("pool", "tailcast-key")
        cluster.script("key", "fleeting", "tailcast-key", "rw")
        os.environ["TAILCAST_CEPH_USER"] = "fleeting"
        self.addCleanup(os.environ.pop, "TAILCAST_CEPH_USER")
        up = self.up("key")
        producer = self.producer(up)
        consumer = self.consumer(up, "key")
        self.assertTrue(wait_until(lambda: len(consumer.messages) > 100), consumer.said.lines)
        key = cluster.ceph("auth", "get", "client.fleeting")
        cluster.ceph("auth", "rm", "client.fleeting")
        cluster.restart()  # what is connected stays so
        told = "refuses the cephx key of client.fleeting"
        producer.said.wait_for(told, 120)
        self.assertTrue(wait_until(lambda: told in self.logs(up), 60), self.logs(up)[-4000:])
        self.no_process_was_ended(up)
        # It is given back: all goes on where it stood.
        path = os.path.join(cluster.root, "key")
        pathlib.Path(path).write_text(key)
        cluster.ceph("auth", "import", "-i", path)
        producer.wait_for(producer.count + 400)
        code, said = producer.finish()
        self.assertEqual(code, 0, said)
        self.assertEqual(self.consumed(up, producer.count, "key"), self.numbered(producer.count))
        self.no_process_was_ended(up)

    def test_what_is_told_to_end_while_the_cluster_is_silent_ends(self):
        up = self.up("silent")
        producer = self.producer(up)
        producer.wait_for(100)
        processes = {name: pid for role in ("scheduler", "cache", "reader", "writer")
                     for name, pid in up.pids("silent", role).items()}
        daemons = [int(path.read_text()) for path in pathlib.Path(cluster.dir, "run").glob("*.pid")]
        for pid in daemons:
            os.kill(pid, signal.SIGSTOP)
            self.addCleanup(os.kill, pid, signal.SIGCONT)
        producer.said.wait_for("has not answered")
        begun = time.monotonic()
        producer.process.send_signal(signal.SIGTERM)
        code = producer.process.wait(timeout=60)
        self.assertGreater(code, 0, "what it was given is not acknowledged")
        self.assertLess(time.monotonic() - begun, PRODUCER_ENDS_S * TIME_FACTOR, producer.said.lines)
        begun = time.monotonic()
        for pid in processes.values():
            os.kill(pid, signal.SIGTERM)
        left = dict(processes)
        ended = {}
        while left and time.monotonic() - begun < 60:
            for name, pid in list(left.items()):
                if not pathlib.Path(f"/proc/{pid}").exists():
                    ended[name] = time.monotonic() - begun
                    del left[name]
            time.sleep(0.02)
        self.assertFalse(left, ended)
        self.assertLess(max(ended.values()), PROCESS_ENDS_S * TIME_FACTOR, ended)
        print("told to end while the cluster is silent: " +
              ", ".join(f"{name} {seconds:.1f} s" for name, seconds in ended.items()), file=sys.stderr)
        self.no_process_was_ended(up)

    @unittest.skipUnless(FULL, "TAILCAST_CEPH_FULL")
    def test_up_brings_a_cluster_of_its_own_and_retention_deletes_there(self):
        def messages(begin, end):
            return b"".join(b"%09d %s\n" % (n, b"x" * 989) for n in range(begin, end))

        count = 4000  # 4 MB: sixteen files
        deployment = Deployment()
        self.addCleanup(deployment.remove)
        up = deployment.up
        deployment.tailcast("stream", "create", "--cluster", "near", "--file-bytes", str(deployment.FILE_BYTES))
        deployment.tailcast("produce", stdin=messages(0, count))
        self.assertEqual(deployment.tailcast("consume", "--cluster", "far", "--count", str(count)), messages(0, count))
        places = []  # behind the first message, and in the middle
        for number in (1, count // 2):
            _, _, err = run("consume", "--dir", up.dir, "--cluster", "far", "--stream", "s", "--count", str(number),
                            "--positions")
            places.append(err.strip())
        before = {cell: (deployment.files(cell), deployment.manifests(cell)) for cell in ("near", "far")}
        self.assertEqual(before["near"][0], before["far"][0])
        self.assertEqual(before["near"][0][0], 1, before)

        def keeps(first):
            """Until both pools have no data files before `first`, and no objects of what went."""
            for cell, (_, manifests) in before.items():
                # Of each file its data and its index; a marker of what is gone may have come.
                gone = 2 * (first - 1) - 1
                self.assertTrue(wait_until(lambda: deployment.files(cell)[0] >= first, 60),
                                f"{cell}: {deployment.files(cell)}")
                self.assertTrue(wait_until(lambda: deployment.manifests(cell) <= manifests - gone, 60),
                                f"{cell}: {deployment.manifests(cell)} of {manifests}")

        out = deployment.tailcast("stream", "trim", "--before", places[1])
        first = int(re.search(rb"file (\d+)", out).group(1))
        self.assertGreater(first, 4)
        keeps(first)
        self.assertEqual([deployment.files(cell)[0] for cell in before], [first, first])
        self.assertEqual(deployment.tailcast("consume", "--cluster", "far", "--from", places[1], "--count",
                                             str(count - count // 2)), messages(count // 2, count))
        last = before["near"][0][-1]
        deployment.tailcast("stream", "retain", "--max-shard-bytes", str(4 * deployment.FILE_BYTES))
        keeps(last - 4)
        for cell in before:
            self.assertLessEqual(deployment.files(cell)[0], last)

        # Who comes late, in caches that have begun anew, on the same cluster, started again.
        self.assertEqual(up.stop(UP_ENDS_S), 0, up.said)
        self.assertFalse(processes_of(up.root))
        up.start()
        err = self.check_fails(1, ["--on-gap skip"], "consume", "--dir", up.dir, "--cluster", "far", "--stream", "s",
                               "--from", places[0], "--count", "1")
        available = re.search(r"the first available one is (t1\.[0-9a-f.]*[0-9a-f])", err).group(1)
        late = deployment.tailcast("consume", "--cluster", "far", "--from", available, "--until-idle", "3")
        self.assertTrue(messages(0, count).endswith(late))
        self.assertGreater(len(late), deployment.FILE_BYTES)
        self.assertEqual(deployment.tailcast("consume", "--cluster", "far", "--from", places[0], "--on-gap", "skip",
                                             "--until-idle", "3"), late)
        # And the stream goes on.
        deployment.tailcast("produce", stdin=messages(count, count + 1000))
        self.assertEqual(deployment.tailcast("consume", "--cluster", "far", "--from", f"number:{count}", "--count",
                                             "1000"), messages(count, count + 1000))
        self.no_process_was_ended(up)
        self.assertGreater(len(processes_of(up.root)), 5)
        self.assertEqual(up.close(UP_ENDS_S), 0, up.said)
        self.assertFalse(processes_of(up.root))
        self.assertFalse(os.path.exists(up.root))

    @unittest.skipUnless(FULL, "TAILCAST_CEPH_FULL")
    def test_what_is_connected_goes_on_without_monitors(self):
        up = self.up("alone")
        producer = self.producer(up)
        consumer = self.consumer(up, "alone")
        producer.wait_for(100)
        monitor = cluster.pid("mon.a")
        os.kill(monitor, signal.SIGSTOP)
        self.addCleanup(os.kill, monitor, signal.SIGCONT)
        begun = time.monotonic()
        consumer.longest_s = 0.0
        with tempfile.TemporaryDirectory() as folder:
            self.check_fails(1, ["no monitor", cluster.conf], "run", "--role", "writer", "--config",
                             self.config(folder, f"ceph:{cluster.conf}?pool=tailcast-alone"))
            self.assertLess(time.monotonic() - begun, ERROR_S * TIME_FACTOR)
        while time.monotonic() - begun < MONITORS_AWAY_S:
            producer.wait_for(producer.count + 100)
        written = producer.count
        self.assertTrue(wait_until(lambda: len(consumer.messages) >= written), consumer.said.lines)
        stall_s = consumer.longest_s
        os.kill(monitor, signal.SIGCONT)
        print(f"the monitor stood for {time.monotonic() - begun:.0f} s: the longest stall was {stall_s:.1f} s",
              file=sys.stderr)
        self.assertLess(stall_s, 10 * TIME_FACTOR)
        producer.wait_for(producer.count + 400)
        code, said = producer.finish()
        self.assertEqual(code, 0, said)
        self.assertTrue(wait_until(lambda: len(consumer.messages) == producer.count), consumer.said.lines)
        self.assertEqual(consumer.messages, self.numbered(producer.count))
        self.assertEqual(self.consumed(up, producer.count, "alone"), self.numbered(producer.count))
        self.no_process_was_ended(up)

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
