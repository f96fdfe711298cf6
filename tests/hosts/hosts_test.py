"""A cell over three hosts feeds one over two: docs/ops/hosts.sh makes them of namespaces, with Ceph between them.

The demo's stream runs while hosts are killed: every process of one at once, with and without the others being told. Every
acknowledged message must be in both cells, once, in order, whatever host it is read from. What that cost is printed:
the longest time in which no message came. Needs root, iproute2 and Ceph.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "system"))
from harness import BINARY, TIME_FACTOR, SystemTest, main, output_of, wait_until  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "docs/ops/hosts.sh"
US, EU = "10.77.1.1:7400", "10.77.2.1:7400"
PROCESSES = {US: ["scheduler", "cache-1", "cache-2", "cache-3", "reader-1", "reader-2"],
             EU: ["scheduler", "cache-1", "cache-2", "cache-3", "writer-1", "writer-2"]}
CLIENTS = ("data_cache_client", "metadata_cache_client")
RATE = 500  # messages a second
STALL_MAX_S = 20  # of consumers, when a host dies; what it is on a quiet machine is in docs/ops/cluster.md
SKIP = 77


def lacking():
    """Why this can't run here; "" if it can."""
    if os.getuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "unshare", "nsenter", "ceph-mon", "ceph-osd"):
        if shutil.which(program) is None:
            return f"there is no {program} on this machine"
    probe = subprocess.run(["unshare", "--net", "ip", "link", "add", "name", "probe0", "type", "bridge"], capture_output=True, text=True)
    return f"no network namespace with a bridge can be made: {probe.stderr.strip()}" if probe.returncode != 0 else ""


class Hosts:
    def __init__(self):
        self.root = tempfile.mkdtemp(prefix="tc-hosts-")
        self.dir = os.path.join(self.root, "d")
        self.script("start")

    def script(self, command, *args):
        output_of(SCRIPT, command, self.dir, *args, timeout=240, TAILCAST=BINARY)

    def words(self, host, *words):
        """What runs tailcast with these words on a host, as one of its own processes does."""
        return [SCRIPT, "on", self.dir, host, "tailcast", *words]

    def start(self, host, ceph_user, *words, **pipes):
        env = dict(os.environ, TAILCAST=BINARY, TAILCAST_CEPH_USER=ceph_user)
        return subprocess.Popen(self.words(host, *words), env=env, **pipes)

    def run(self, host, *words):
        return output_of(*self.words(host, *words), TAILCAST=BINARY)

    def cell(self, host, scheduler):
        return json.loads(self.run(host, "status", "--cell", scheduler, "--json"))["cells"][0]

    def close(self):
        self.script("stop")
        shutil.rmtree(self.root)


def setUpModule():
    global hosts
    hosts = Hosts()
    unittest.addModuleCleanup(hosts.close)


class Consumer:
    """`tailcast consume` on a host: what it wrote, and when."""

    def __init__(self, host, scheduler, stream, count, ceph_user):
        self.host = host
        self.process = hosts.start(host, ceph_user, "consume", "--cell", scheduler, "--stream", stream, "--profile", "low-latency",
                                   "--count", str(count), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.lines, self.times = [], []
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            self.times.append(time.monotonic())

    def longest_wait(self, since):
        times = [since] + [t for t in self.times if t > since]
        return max((b - a for a, b in zip(times, times[1:])), default=0)

    def finish(self, timeout):
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.thread.join()
        _, said = self.process.communicate()
        return f"{self.host}: {len(self.lines)} lines, exit code {self.process.returncode}: {said.decode()[-2000:]}"


class Producer:
    """`tailcast produce` of these lines, at RATE."""

    def __init__(self, host, stream, lines):
        self.process = hosts.start(host, "us", "produce", "--cell", US, "--stream", stream, "--profile", "low-latency",
                                   "--rate", str(RATE), stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        self.thread = threading.Thread(target=self._write, args=[lines])
        self.thread.start()

    def _write(self, lines):
        with self.process.stdin as pipe:
            try:
                pipe.write(b"".join(lines))
            except BrokenPipeError:
                pass

    def finish(self, timeout):
        """(exit code, what it said). 0: all of them are acknowledged."""
        code = self.process.wait(timeout)
        self.thread.join()
        with self.process.stderr as pipe:
            return code, pipe.read().decode()


class HostsTest(SystemTest):
    @classmethod
    def setUpClass(cls):
        data = subprocess.run([sys.executable, ROOT / "bench/data/flights.py"], check=True, capture_output=True, text=True)
        cls.flights = pathlib.Path(data.stdout.strip()).read_bytes().splitlines(keepends=True)

    def lines(self, first, count):
        return self.flights[first:first + count]

    def stream(self, name, host="us-1"):
        hosts.run(host, "stream", "create", "--cell", US, "--stream", name)
        return name

    def all_there(self, host, scheduler):
        """Every process of the cell answers, and each that has clients of the caches reads all three."""
        processes = hosts.cell(host, scheduler)["processes"]
        clients = [p["status"][k] for p in processes if p["state"] == "up" for k in CLIENTS if k in p["status"]]
        return {p["name"] for p in processes if p["state"] == "up"} == set(PROCESSES[scheduler]) and bool(clients) and all(
            c["ready_replicas"] == 3 for c in clients)

    def are_well(self):
        for host, scheduler in (("us-1", US), ("eu-1", EU)):
            self.assertTrue(wait_until(lambda h=host, s=scheduler: self.all_there(h, s), 60), hosts.cell(host, scheduler))

    def survives(self, stream, lines, actions, readers):
        """Runs `actions` in mid-stream, one after the other; every consumer gets every line. Each: (what, function)."""
        # With the key that may only read.
        consumers = [Consumer(host, scheduler, stream, len(lines), host[:2] + "-readers") for host, scheduler in readers]
        producer = Producer("us-1", stream, lines)
        per_action = len(lines) // (len(actions) + 1)
        for number, (what, action) in enumerate(actions, 1):
            self.assertTrue(wait_until(lambda n=number: all(len(c.lines) >= n * per_action for c in consumers), 120),
                            f"before {what}: {[len(c.lines) for c in consumers]}")
            begun = time.monotonic()
            action()
            # Until the next: leases and time-outs of what died end within seconds.
            self.assertTrue(wait_until(lambda n=number: all(len(c.lines) >= (n + 1) * per_action for c in consumers), 120),
                            f"after {what}: {[len(c.lines) for c in consumers]}")
            stalls = {c.host: c.longest_wait(begun) for c in consumers}
            print(f"{what}: consumers waited {', '.join(f'{s * 1000:.0f} ms on {h}' for h, s in stalls.items())}")
            for host, stall in stalls.items():
                self.assertLess(stall, STALL_MAX_S * TIME_FACTOR, f"{what}: {host}")
        code, said = producer.finish(180 * TIME_FACTOR)
        self.assertEqual(code, 0, said)
        for consumer in consumers:
            said = consumer.finish(90 * TIME_FACTOR)
            self.assertEqual(len(consumer.lines), len(lines), said)
            self.assertEqual(consumer.lines, lines, "not what was published, in that order: " + said)

    def test_1_memory_is_read_within_a_host_and_by_tcp_across(self):
        self.are_well()
        ways = {p["name"]: {c["replica"]: c["reads"]["over"] for c in p["status"]["data_cache_client"]["connections"]}
                for p in hosts.cell("us-1", US)["processes"] if p["role"] == "reader"}
        self.assertEqual(ways, {"reader-1": {"cache-1": "tcp", "cache-2": "shm", "cache-3": "tcp"},
                                "reader-2": {"cache-1": "tcp", "cache-2": "tcp", "cache-3": "shm"}})

    def test_2_hosts_have_nothing_of_each_other(self):
        # Folders, processes, loopback and /tmp.
        seen = subprocess.run([SCRIPT, "on", hosts.dir, "us-2", "sh", "-c", "ls /srv/etc; ls /tmp; ls " + hosts.dir +
                               " 2>&1; ps -e -o comm=; ip -o addr show"], capture_output=True, text=True, check=True).stdout
        self.assertIn("reader-1.yaml", seen)
        for other in ("cache-1", "cache-3", "us-3", "ceph-osd", "10.77.1.1/"):
            self.assertNotIn(other, seen)

    def test_3_a_key_is_good_for_one_pool_and_readers_write_nothing(self):
        def rados(user, pool, *words):
            return subprocess.run([SCRIPT, "on", hosts.dir, "us-1", "rados", "-c", "/srv/etc/ceph.conf", "--id", user,
                                   "-p", pool, *words], capture_output=True, text=True, timeout=60)
        listed = rados("us-readers", "tailcast-us", "ls")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertIn("d:", listed.stdout)
        for user, pool, words in (("us-readers", "tailcast-us", ("create", "x")), ("us", "tailcast-eu", ("ls",))):
            self.assertIn("Operation not permitted", rados(user, pool, *words).stderr)

    def test_4_hosts_die_in_mid_stream(self):
        name = self.stream("flights")
        self.survives(name, self.lines(0, 15000), [
            ("us-2 (a cache, a reader) killed", lambda: hosts.script("kill", "us-2")),
            ("us-2 comes back", lambda: hosts.script("boot", "us-2")),
            ("eu-2 (two caches, a writer) killed", lambda: hosts.script("kill", "eu-2")),
            ("eu-2 comes back", lambda: hosts.script("boot", "eu-2")),
        ], [("us-1", US), ("us-3", US), ("eu-1", EU)])
        self.are_well()

    def test_5_hosts_lose_their_power_and_nobody_is_told(self):
        name = self.stream("flights-2")
        self.survives(name, self.lines(15000, 12000), [
            ("us-3 (a cache, a reader) cut off", lambda: hosts.script("cut", "us-3")),
            ("us-3 comes back", lambda: hosts.script("boot", "us-3")),
            ("eu-1 (scheduler, a cache, a writer) cut off", lambda: hosts.script("cut", "eu-1")),
        ], [("us-1", US), ("eu-2", EU)])
        hosts.script("boot", "eu-1")
        self.are_well()


if __name__ == "__main__":
    if reason := lacking():
        print(f"skipped: {reason}")
        sys.exit(SKIP)
    main()
