"""A disk that is full of messages, under a real deployment, is emptied by what tailcast has for that: trim, delete,
retention; at the source, where the scheduler may have died on it, and at a destination."""

import os
import pathlib
import signal
import subprocess
import unittest

from harness import BINARY, NEAR_AND_FAR, ONE_CELL, TIME_FACTOR, SmallDisk, SystemTest, Up, main, run, wait_until

FILE = 1 << 20


class UpWithASmallDisk(Up):
    def __init__(self, small, mebibytes, topology, *options):
        self.small, self.mebibytes = small, mebibytes
        super().__init__(topology, *options)

    def start(self):
        if not hasattr(self, "disk"):
            self.disk = SmallDisk(os.path.join(self.dir, self.small, "store"), self.mebibytes)
        super().start()

    def close(self):
        code = self.stop()
        self.disk.close()
        self.remove()
        return code


def lines(begin, end):
    return b"".join(b"%06d %s\n" % (n, b"x" * 10_000) for n in range(begin, end))


@unittest.skipIf(os.geteuid() != 0, "mounts a small disk, which only root may")
class FullDisk(SystemTest):
    def tailcast(self, *args):
        code, out, err = run(args[0], *args[1:2], "--dir", self.up.dir, *args[2:])
        self.assertEqual(code, 0, err)
        return out.decode()

    def troubles(self):
        code, out, err = run("status", "--dir", self.up.dir)
        self.assertEqual(code, 0, err)
        return out.decode()

    def wait_for_status(self, words):
        self.assertTrue(wait_until(lambda: words in self.troubles()), self.troubles())

    def position(self, cell, message):
        """Where this message is, as trim wants it."""
        code, _, positions = run("consume", "--dir", self.up.dir, "--cluster", cell, "--stream", "s", "--from",
                                 "beginning", "--count", str(message), "--positions")
        self.assertEqual(code, 0, positions)
        return positions.strip()

    def producer(self, count):
        """Publishes so many messages, from now on."""
        path = pathlib.Path(self.up.root, "input")
        path.write_bytes(lines(0, count))
        said = pathlib.Path(self.up.root, "said")
        with path.open("rb") as file, said.open("wb") as output:
            process = subprocess.Popen([BINARY, "produce", "--dir", self.up.dir, "--stream", "s"], stdin=file,
                                       stderr=output)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, said


class AtTheSource(FullDisk):
    def setUp(self):
        self.up = UpWithASmallDisk("here", 32, ONE_CELL, "--profile", "low-latency")
        self.addCleanup(self.up.close)
        self.tailcast("stream", "create", "--stream", "s", "--file-bytes", str(FILE))

    def fill(self, count):
        producer, said = self.producer(count)
        self.assertTrue(wait_until(lambda: "No space left" in said.read_text()), said.read_text())
        self.up.disk.fill_rest()
        self.wait_for_status("the disk is full: ")
        return producer, said

    def kill_scheduler(self):
        [(_, pid)] = self.up.pids("here", "scheduler").items()
        os.kill(pid, signal.SIGKILL)
        self.up.wait_for("scheduler")
        self.assertTrue(wait_until(lambda: run("status", "--dir", self.up.dir)[0] == 0))

    def test_trim_frees_it_and_the_producer_goes_on(self):
        producer, said = self.fill(4000)
        self.assertIsNone(producer.poll())
        first = min(self.up.disk.folder.glob("streams/s/**/*.index"))
        self.tailcast("stream", "trim", "--stream", "s", "--before", self.position("here", 1500))
        # What is free then may be taken at once by the producer.
        self.assertTrue(wait_until(lambda: self.disk_free() > 8 << 20 or not first.exists()), self.troubles())
        # It waits as long as it takes, and each trim lets it go on.
        for message in (1000, 1000):
            if producer.poll() is not None:
                break
            wait_until(lambda: producer.poll() is not None, 5)
            self.tailcast("stream", "trim", "--stream", "s", "--before", self.position("here", message))
        self.assertEqual(producer.wait(timeout=60 * TIME_FACTOR), 0, said.read_text())
        code, out, err = run("consume", "--dir", self.up.dir, "--stream", "s", "--from", "beginning", "--to", "end")
        self.assertEqual(code, 0, err)
        self.assertTrue(lines(0, 4000).endswith(out))
        self.assertGreater(len(out), 1 << 20)
        self.assertTrue(wait_until(lambda: "the disk is full" not in self.troubles()), self.troubles())

    def disk_free(self):
        return self.up.disk.free_bytes()

    def test_a_stream_is_deleted_from_it(self):
        producer, _ = self.fill(4000)
        self.tailcast("stream", "delete", "--stream", "s", "--yes")
        self.assertTrue(wait_until(lambda: self.disk_free() > 24 << 20), self.troubles())
        self.assertNotEqual(producer.wait(timeout=60 * TIME_FACTOR), 0)
        self.tailcast("stream", "create", "--stream", "s", "--file-bytes", str(FILE))
        self.assertTrue(wait_until(lambda: "the disk is full" not in self.troubles()), self.troubles())

    def test_a_scheduler_that_dies_on_it_comes_back_and_trims_and_deletes(self):
        producer, said = self.fill(4000)
        for _ in range(5):
            self.kill_scheduler()
        self.wait_for_status("the disk is full: ")
        self.assertIsNone(producer.poll(), said.read_text())
        self.tailcast("stream", "trim", "--stream", "s", "--before", self.position("here", 1500))
        self.assertTrue(wait_until(lambda: self.disk_free() > 8 << 20 or producer.poll() is not None),
                        self.troubles())
        self.wait_for_status("the disk is full: ")  # the producer has filled it again
        self.kill_scheduler()
        self.tailcast("stream", "delete", "--stream", "s", "--yes")
        self.assertTrue(wait_until(lambda: self.disk_free() > 24 << 20), self.troubles())

    def test_a_scheduler_that_finds_no_room_at_all_says_so_and_goes_on_when_there_is_some(self):
        store = pathlib.Path(self.up.disk.folder)
        producer, _ = self.fill(4000)
        # Something else has taken what was kept, too.
        (store / ".reserve").unlink(missing_ok=True)
        (store / "filler").rename(store / "rest")
        self.up.disk.fill_rest()
        for days in range(1, 50):  # what is left of a page takes some
            code, _, err = run("stream", "retain", "--dir", self.up.dir, "--stream", "s", "--max-age", f"{days}d")
            if code != 0:
                break
        self.assertEqual(code, 1, err)
        self.wait_for_status("nothing can be changed until there is room for the registry")
        pids = self.up.pids("here", "scheduler")
        self.check_fails(1, ["can change nothing", "No space left"], "stream", "create", "--dir", self.up.dir,
                         "--stream", "t")
        self.assertEqual(self.up.pids("here", "scheduler"), pids, "it does not die of it")
        (store / "filler").unlink()
        (store / "rest").unlink()
        self.assertTrue(wait_until(lambda: "nothing can be changed" not in self.troubles()), self.troubles())
        run("stream", "delete", "--dir", self.up.dir, "--stream", "s", "--yes")  # it may have been done
        self.assertTrue(wait_until(lambda: self.disk_free() > 24 << 20), self.troubles())
        self.assertEqual(self.up.pids("here", "scheduler"), pids)
        producer.kill()


class AtADestination(FullDisk):
    def setUp(self):
        self.up = UpWithASmallDisk("far", 24, NEAR_AND_FAR, "--profile", "low-latency")
        self.addCleanup(self.up.close)
        self.tailcast("stream", "create", "--cluster", "near", "--stream", "s", "--file-bytes", str(FILE))

    def test_what_is_trimmed_at_the_source_frees_it_and_copies_go_on(self):
        producer, said = self.producer(3000)
        self.assertEqual(producer.wait(timeout=60 * TIME_FACTOR), 0, said.read_text())
        self.wait_for_status("far: the disk is full: ")
        self.up.disk.fill_rest()
        self.tailcast("stream", "trim", "--stream", "s", "--before", self.position("near", 1200))
        self.assertTrue(wait_until(lambda: "the disk is full" not in self.troubles(), 60), self.troubles())
        code, out, err = run("consume", "--dir", self.up.dir, "--cluster", "far", "--stream", "s", "--from", "beginning",
                             "--to", "end")
        self.assertEqual(code, 0, err)
        self.assertTrue(lines(0, 3000).endswith(out))
        self.assertGreater(len(out), 15 << 20)


if __name__ == "__main__":
    main()
