"""A stream from end to end whose chunks are read by RDMA; runs in a kernel that has a device (run.py)."""

import json
import os
import pathlib
import re
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "system"))
from harness import ONE_CELL, SystemTest, Up, main, run, wait_until  # noqa: E402

HOST = os.environ["TAILCAST_TEST_VERBS_HOST"]


class Stream(SystemTest):
    def test_what_was_produced_is_read_by_rdma(self):
        up = Up(ONE_CELL, "--fabric-rdma", HOST, "--caches", "3", "--readers", "1", "--writers", "1",
                "--durability", "page-cache")
        try:
            code, _, err = run("stream", "create", "--dir", up.dir, "--stream", "s", "--shards", "1")
            self.assertEqual(code, 0, err)
            payload = b"".join(b"line %d of a stream that is read by RDMA\n" % i for i in range(5_000))
            code, _, err = run("produce", "--dir", up.dir, "--stream", "s", stdin=payload)
            self.assertEqual(code, 0, err)
            code, out, err = run("consume", "--dir", up.dir, "--stream", "s", "--fabric", "verbs", "--from", "beginning",
                                 "--until-idle", "2")
            self.assertEqual(code, 0, err)
            self.assertEqual(out, payload)
            # Where the bytes came from: a client falls back to the primary layer when it reaches no cache.
            code, _, err = run("stream", "create", "--dir", up.dir, "--stream", "load", "--shards", "1")
            self.assertEqual(code, 0, err)
            code, _, err = run("load", "produce", "--dir", up.dir, "--stream", "load", "--seconds", "2",
                               "--mb-per-s", "2")
            self.assertEqual(code, 0, err)
            code, out, err = run("load", "consume", "--dir", up.dir, "--stream", "load", "--fabric", "verbs",
                                 "--from", "beginning", "--until-idle", "2")
            self.assertEqual(code, 0, err)
            report = json.loads(out.splitlines()[-1])
            self.assertGreater(report["cache_bytes"], 1_000_000, report)
            # On a busy machine some come from the primary layer: its consumer asks there for what is late.
            self.assertGreater(report["cache_bytes"], report["primary_bytes"], report)
            # A reader that finds no caches on its own host goes by RDMA by itself, and status says so.
            sockets = list(pathlib.Path(up.dir).rglob("*.shm"))
            self.assertGreaterEqual(len(sockets), 3)
            for socket in sockets:
                socket.unlink()
            os.kill(up.pids("here", "reader")["reader-1"], signal.SIGKILL)
            over = re.compile(rb"reader-1 reads? cache-\d.* over verbs \(shm: not from this host\)")
            wait_until(lambda: over.search(run("status", "--dir", up.dir, "--cluster", "here")[1]))
            self.assertRegex(run("status", "--dir", up.dir, "--cluster", "here")[1], over)
        finally:
            self.assertEqual(up.close(), 0)


if __name__ == "__main__":
    main()
