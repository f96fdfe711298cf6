"""Whose sessions run before others, where Linux shares the processors out by sessions (docs/caches.md, "Priority")."""

import os
import pathlib
import subprocess
import time

from harness import BINARY, TIME_FACTOR, OneCellTest, main, wait_until

MAY_RAISE = "echo -10 > /proc/self/autogroup && cat /proc/self/autogroup"


def session_nice(pid):
    return int(pathlib.Path(f"/proc/{pid}/autogroup").read_text().split()[-1])


class Priority(OneCellTest):
    def setUp(self):
        probe = subprocess.run(["sh", "-c", MAY_RAISE], start_new_session=True, capture_output=True, text=True)
        if not probe.stdout.strip().endswith("nice -10"):
            self.skipTest(f"no session can be raised here: {probe.stderr or 'the kernel groups by none'}")
        if os.getpriority(os.PRIO_PROCESS, 0) != 0:
            self.skipTest("these tests were given a priority")

    def test_caches_run_before_others_and_readers_and_writers_of_the_tree_do_not(self):
        [cell] = self.up.status()["cells"]
        self.assertEqual({(p["role"], session_nice(p["pid"])) for p in cell["processes"]},
                         {("cache", -10), ("reader", 0), ("scheduler", 0), ("writer", 0)})

    def test_a_producer_does_but_less_while_it_writes_in_bulk(self):
        producer = subprocess.Popen([BINARY, "produce", *self.create("s"), "--profile", "low-latency"], start_new_session=True,
                                    stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self.addCleanup(producer.wait)
        self.addCleanup(producer.kill)

        def writes_until(nice, data, pause):
            end = time.monotonic() + 60 * TIME_FACTOR
            while (now := session_nice(producer.pid)) != nice:
                self.assertLess(time.monotonic(), end, f"the session is at nice {now}, not {nice}")
                producer.stdin.write(data)
                producer.stdin.flush()
                time.sleep(pause)

        self.assertTrue(wait_until(lambda: session_nice(producer.pid) == -10))
        line = b"x" * 65535 + b"\n"
        writes_until(-5, line * 16, 0)
        writes_until(-10, line, 0.1)
        producer.stdin.close()
        self.assertEqual(producer.wait(60 * TIME_FACTOR), 0)


if __name__ == "__main__":
    main()
