"""Readers and writers of a cell come and go while messages flow: nothing is lost, and nothing late."""

import pathlib
import signal
import subprocess
import threading
import time
import unittest

import harness
from harness import BINARY, TIME_FACTOR, SystemTest, Up, run, wait_until

TWO_CELLS = """version: 1
clusters:
  - {name: us}
  - {name: eu}
links:
  - {from: us, to: eu, usd_per_gb: 0.02, rtt_ms: 20, both: true}
streams:
  - {name: flights, source: us}
"""
SHARDS = 4
INTERVAL_S = 0.02
# Of a message, from being written to a producer until its consumer has it. A worker that is killed, instead of
# handing over, costs a few hundred milliseconds on a quiet machine.
DELAY_MAX_S = 1.5


class Flow:
    """Lines to each shard of a stream in us, from their consumers in eu."""

    def __init__(self, up, stream):
        where = ["--dir", up.dir, "--stream", stream]
        self.sent = [[] for _ in range(SHARDS)]  # times
        self.got = [[] for _ in range(SHARDS)]   # (line, time)
        self.stop = threading.Event()
        self.consumers = [subprocess.Popen([BINARY, "consume", *where, "--cluster", "eu", "--shard", str(s), "--follow"],
                                           stdout=subprocess.PIPE) for s in range(SHARDS)]
        self.producers = [subprocess.Popen([BINARY, "produce", *where, "--shard", str(s)],
                                           stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) for s in range(SHARDS)]
        self.threads = [threading.Thread(target=self._take, args=(s,), daemon=True) for s in range(SHARDS)]
        self.threads.append(threading.Thread(target=self._send, daemon=True))
        for thread in self.threads:
            thread.start()

    def _send(self):
        while not self.stop.wait(INTERVAL_S):
            for shard, producer in enumerate(self.producers):
                line = b"%d:%d %s\n" % (shard, len(self.sent[shard]), b"x" * 10000)
                self.sent[shard].append(time.monotonic())
                producer.stdin.write(line)
                producer.stdin.flush()

    def _take(self, shard):
        for line in self.consumers[shard].stdout:
            self.got[shard].append((line, time.monotonic()))

    def has_begun(self):
        return all(len(got) > 10 for got in self.got)

    def has_more(self):
        """Whether each shard gets on, from now until it is called the second time."""
        before = [len(got) for got in self.got]
        return lambda: all(len(got) > n + 10 for got, n in zip(self.got, before))

    def has_all(self):
        return all(len(got) >= len(sent) for got, sent in zip(self.got, self.sent))

    def finish(self):
        """Sends no more; until everything is there, or half a minute has passed."""
        self.stop.set()
        self.threads[-1].join()
        for producer in self.producers:
            producer.stdin.close()
        for producer in self.producers:
            producer.wait(timeout=30 * TIME_FACTOR)
        wait_until(self.has_all, 30)
        for consumer in self.consumers:
            consumer.terminate()
            consumer.wait(timeout=30 * TIME_FACTOR)
        for thread in self.threads:
            thread.join()
        for consumer in self.consumers:
            consumer.stdout.close()

    def longest_delay_s(self, since):
        return max(at - sent for shard in range(SHARDS)
                   for (_, at), sent in zip(self.got[shard], self.sent[shard]) if sent >= since)


class WorkersTest(SystemTest):
    @classmethod
    def setUpClass(cls):
        cls.up = Up(TWO_CELLS, "--profile", "low-latency", "--caches", "3")

    @classmethod
    def tearDownClass(cls):
        assert cls.up.close() == 0

    def workers(self, cell, *options):
        code, out, err = run("workers", "--dir", self.up.dir, "--cluster", cell, *options)
        self.assertEqual(code, 0, err)
        return out.decode(), err

    def run_something(self, cell, role, *names):
        cells = {c["name"]: c for c in self.up.status()["cells"]}
        return any(o[role] in names for o in cells[cell]["operations"] if o["phase"] == "running")

    def test_a_live_stream_while_readers_and_writers_grow_to_three_and_shrink_to_one(self):
        self.workers("us", "--readers", "1")
        self.workers("eu", "--writers", "1")
        begun_again = len([line for line in self.up.said if "started again" in line])
        before = {**self.up.pids("us", "reader"), **self.up.pids("eu", "writer")}
        self.assertEqual(sorted(before), ["reader-1", "writer-1"])
        run("stream", "create", "--dir", self.up.dir, "--cluster", "us", "--stream", "live", "--shards", str(SHARDS))
        flow = Flow(self.up, "live")
        self.assertTrue(wait_until(flow.has_begun, 30))
        since = time.monotonic()

        out, err = self.workers("us", "--readers", "3")
        self.assertIn("reader-3", out)
        self.assertIn("reader-2 to start", err)
        self.workers("eu", "--writers", "3")
        # One operation is given to a newcomer every 5 s.
        self.assertTrue(wait_until(lambda: self.run_something("us", "reader", "reader-2", "reader-3") and
                                   self.run_something("us", "writer", "writer-2", "writer-3"), 60))
        out, err = self.workers("us", "--readers", "1")
        self.assertNotIn("reader-2", out)
        self.assertIn("waits for", err)
        self.workers("eu", "--writers", "1")
        for name in ("us/reader-2", "us/reader-3", "eu/writer-2", "eu/writer-3"):
            self.up.wait_for(f"{name} has ended, as it was asked to", timeout=20)
        self.assertTrue(wait_until(flow.has_more(), 30))
        flow.finish()

        for shard in range(SHARDS):
            self.assertEqual([line.split()[0] for line, _ in flow.got[shard]],
                             [b"%d:%d" % (shard, n) for n in range(len(flow.sent[shard]))])
        self.assertLess(flow.longest_delay_s(since), DELAY_MAX_S * TIME_FACTOR)
        self.assertEqual({**self.up.pids("us", "reader"), **self.up.pids("eu", "writer")}, before)
        self.assertEqual(len([line for line in self.up.said if "started again" in line]), begun_again)

    def test_another_number_outlives_up(self):
        out, _ = self.workers("us", "--readers", "3", "--writers", "1")
        self.assertEqual(sorted(line.split()[0] for line in out.splitlines()),
                         ["reader-1", "reader-2", "reader-3", "writer-1"])
        self.assertEqual(self.up.stop(), 0)
        self.up.start()
        self.assertEqual(sorted(self.up.pids("us", "reader")), ["reader-1", "reader-2", "reader-3"])
        self.assertEqual(sorted(self.up.pids("us", "writer")), ["writer-1"])
        out, err = self.workers("us")
        self.assertIn("reader-3", out)
        self.assertEqual(err, "")

    def test_sigterm_of_a_worker_hands_over_and_up_starts_it_again(self):
        self.workers("us", "--readers", "2")
        pid = self.up.pids("us", "reader")["reader-2"]
        subprocess.run(["kill", "-TERM", str(pid)], check=True)
        self.up.wait_for(f"reader-2 (pid {pid}) ended with exit code 0", timeout=20)
        log = pathlib.Path(self.up.dir, "us/log/reader-2.log").read_text()
        self.assertIn("us/reader-2 leaves: others run what it ran", log)
        self.assertTrue(wait_until(
            lambda: self.up.pids("us", "reader").get("reader-2", pid) not in (0, pid), 20))

    def test_who_waits_for_a_number_that_another_one_took_back_does_not_wait_on(self):
        self.up.process.send_signal(signal.SIGSTOP)  # nothing is carried out
        try:
            first = subprocess.Popen([BINARY, "workers", "--dir", self.up.dir, "--cluster", "eu", "--readers", "9"],
                                     stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
            self.assertIn("to start", first.stderr.readline())
            self.workers("eu", "--readers", "2", "--no-wait")
            _, err = first.communicate(timeout=20 * TIME_FACTOR)
        finally:
            self.up.process.send_signal(signal.SIGCONT)
        self.assertEqual(first.returncode, 1, err)
        self.assertIn("another `tailcast workers` has asked for 2 readers since", err)

    def test_bad_input(self):
        where = ["--dir", self.up.dir]
        self.check_fails(2, ["--readers", "not in range 1 to 100"], "workers", *where, "--cluster", "us", "--readers", "0")
        self.check_fails(2, ["--writers", "not in range 1 to 100"], "workers", *where, "--cluster", "us", "--writers", "101")
        self.check_fails(1, ["no cluster 'uss'", "'us'"], "workers", *where, "--cluster", "uss", "--readers", "2")
        self.check_fails(2, ["which cluster?", "eu"], "workers", *where, "--readers", "2")
        self.check_fails(1, ["no deployment in /nonexistent", "tailcast up"],
                         "workers", "--dir", "/nonexistent", "--cluster", "us", "--readers", "2")
        self.check_fails(2, ["tailcast run", "SIGTERM"], "workers", "--cell", "127.0.0.1:1", "--readers", "2")


if __name__ == "__main__":
    harness.main()
