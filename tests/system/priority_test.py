"""Who writes what many read runs before them if it may (docs/caches.md, "Priority")."""

import os
import pathlib
import subprocess
import sys
import time

from harness import BINARY, ONE_CELL, TIME_FACTOR, SystemTest, Up, main, run, wait_until

MAY_RAISE_THREADS = """import os
try: os.setpriority(os.PRIO_PROCESS, 0, -10)
except OSError: pass
print(os.getpriority(os.PRIO_PROCESS, 0))"""
# Twice: without CAP_SYS_ADMIN it works once in 100 ms, and others wait for that.
MAY_RAISE_SESSIONS = "cd /proc/self && echo -9 > autogroup && echo -10 > autogroup && cat autogroup"
WRITTEN_MAX = 4 << 30


def priorities(pid):
    """Of each name of the process' threads."""
    found = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
            found.setdefault(name, set()).add(os.getpriority(os.PRIO_PROCESS, int(task.name)))
        except OSError:  # it has ended
            continue
    return found


def session_nice(pid):
    return int(pathlib.Path(f"/proc/{pid}/autogroup").read_text().split()[-1])


class Priority(SystemTest):
    @classmethod
    def setUpClass(cls):
        cls.up = Up(ONE_CELL, "--profile", "low-latency", "--durability", "page-cache")
        cls.addClassCleanup(cls.up.close)
        code, _, err = run("stream", "create", "--dir", cls.up.dir, "--stream", "s")
        assert code == 0, err

    def setUp(self):
        own = os.getpriority(os.PRIO_PROCESS, 0)
        if own != 0:
            self.skipTest(f"these tests were given a priority ({own}), and so was all that they begin")

    def need_sessions(self):
        probe = subprocess.run(["sh", "-c", MAY_RAISE_SESSIONS], start_new_session=True, capture_output=True, text=True)
        if not probe.stdout.strip().endswith("nice -10"):
            self.skipTest(f"sessions can't be raised here: {probe.stderr.strip() or 'the kernel groups by none'}")

    def producer(self, profile):
        producer = subprocess.Popen([BINARY, "produce", "--dir", self.up.dir, "--stream", "s", "--profile", profile],
                                    start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL)
        self.addCleanup(producer.wait)
        self.addCleanup(producer.kill)
        self.addCleanup(producer.stdin.close)
        return producer

    def await_end(self, producer):
        producer.stdin.close()
        self.assertEqual(producer.wait(timeout=60 * TIME_FACTOR), 0)

    def test_threads(self):
        may = subprocess.run([sys.executable, "-c", MAY_RAISE_THREADS], stdout=subprocess.PIPE, check=True)
        first = int(may.stdout)
        for pid in self.up.pids("here", "cache").values():
            seen = priorities(pid)
            self.assertEqual((os.getpriority(os.PRIO_PROCESS, pid), seen["fabric-server"]), (first, {first}))
            self.assertEqual(seen.get("fabric-pages", {0}), {0})
        for role in ("scheduler", "reader", "writer"):  # what they catch up with may be much
            for pid in self.up.pids("here", role).values():
                self.assertEqual(set.union(*priorities(pid).values()), {0}, role)
        for profile, expected in (("low-latency", first), ("standard", 0)):
            producer = self.producer(profile)
            producer.stdin.write(b"a line\n")
            producer.stdin.flush()
            self.assertTrue(wait_until(lambda: "storage-write" in priorities(producer.pid)), priorities(producer.pid))
            seen = priorities(producer.pid)
            self.assertEqual((seen["producer"], seen["storage-write"]), ({expected}, {expected}), profile)
            self.assertEqual(os.getpriority(os.PRIO_PROCESS, producer.pid), 0, "the caller's thread")
            self.await_end(producer)

    def test_sessions(self):
        self.need_sessions()
        [cell] = self.up.status()["cells"]
        self.assertEqual({(p["role"], session_nice(p["pid"])) for p in cell["processes"]},
                         {("cache", -10), ("reader", 0), ("scheduler", 0), ("writer", 0)})

    def test_the_session_of_a_producer_has_less_while_it_writes_in_bulk(self):
        self.need_sessions()
        if TIME_FACTOR > 1:
            self.skipTest("a sanitised program need not be as fast as that, 16 MiB/s")
        producer = self.producer("low-latency")
        self.assertTrue(wait_until(lambda: session_nice(producer.pid) == -10), session_nice(producer.pid))

        def writes_until(nice, data, pause):
            begin, written = time.monotonic(), 0
            while (now := session_nice(producer.pid)) != nice:
                seconds = time.monotonic() - begin
                if seconds > 60 or written > WRITTEN_MAX:
                    self.fail(f"the session is at nice {now}, not {nice}, after {written} bytes in {seconds:.1f} s")
                producer.stdin.write(data)
                producer.stdin.flush()
                written += len(data)
                time.sleep(pause)

        line = b"x" * 65535 + b"\n"
        writes_until(-5, line * 16, 0)
        writes_until(-10, line, 0.1)
        self.await_end(producer)


if __name__ == "__main__":
    main()
