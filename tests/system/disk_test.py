"""A disk that is full, under a real deployment: who waits for it says so, and goes on when there is room."""

import contextlib
import os
import pathlib
import re
import signal
import shutil
import subprocess
import tempfile
import threading
import time
import unittest

from harness import (BINARY, NEAR_AND_FAR, ONE_CELL, TIME_FACTOR, OneCellTest, SmallDisk, SystemTest, Up, main, run,
                     wait_until)


class UpOnASmallDisk(Up):
    def start(self):
        if not hasattr(self, "disk"):
            self.disk = SmallDisk(os.path.join(self.dir, "here", "store"), 16)
        super().start()

    def close(self):
        code = self.stop()
        self.disk.close()
        self.remove()
        return code


@unittest.skipIf(os.geteuid() != 0, "mounts a small disk, which only root may")
class FullDisk(SystemTest):
    def setUp(self):
        self.up = UpOnASmallDisk(ONE_CELL, "--profile", "low-latency")
        self.addCleanup(self.up.close)
        code, _, err = run("stream", "create", "--dir", self.up.dir, "--stream", "s")
        self.assertEqual(code, 0, err)

    def start_producer(self):
        producer = subprocess.Popen([BINARY, "produce", "--dir", self.up.dir, "--stream", "s"],
                                    stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        said = []
        told = threading.Event()

        def listen():
            for line in producer.stderr:
                said.append(line)
                if "No space left" in line:
                    told.set()

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        return producer, said, told, listener

    def check_named(self, said):
        [line] = [line for line in said if "No space left" in line]
        for words in ("s/0", str(self.up.disk.folder), " of 16 MiB are free", "trying again"):
            self.assertIn(words, line)

    def finish(self, producer, said, listener, expected):
        producer.stdin.close()
        self.assertEqual(producer.wait(timeout=60 * TIME_FACTOR), 0, said)
        listener.join(timeout=5)
        producer.stderr.close()
        code, out, err = run("consume", "--dir", self.up.dir, "--stream", "s", "--from", "beginning",
                             "--until-idle", "2")
        self.assertEqual((code, out), (0, expected), err)

    def test_a_producer_that_cannot_begin_names_it_and_begins_when_there_is_room(self):
        self.up.disk.fill()
        producer, said, told, listener = self.start_producer()
        self.assertTrue(told.wait(10 * TIME_FACTOR), said)
        self.check_named(said)
        self.up.disk.make_room()
        producer.stdin.write("one\n")
        self.finish(producer, said, listener, b"one\n")

    def test_a_producer_that_runs_names_it_and_loses_nothing(self):
        producer, said, told, listener = self.start_producer()
        producer.stdin.write("one\n")
        producer.stdin.flush()
        code, out, err = run("consume", "--dir", self.up.dir, "--stream", "s", "--from", "beginning",
                             "--count", "1")
        self.assertEqual((code, out), (0, b"one\n"), err)
        self.up.disk.fill()
        long_line = "x" * (1 << 20) + "\n"
        producer.stdin.write(long_line)
        producer.stdin.flush()
        self.assertTrue(told.wait(10 * TIME_FACTOR), said)
        self.check_named(said)
        self.up.disk.make_room()
        self.finish(producer, said, listener, b"one\n" + long_line.encode())

    def interrupt(self, process):
        """Its exit code, and how long it took to end."""
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        code = process.wait(timeout=60 * TIME_FACTOR)
        return code, time.monotonic() - began

    def test_an_interrupt_ends_a_producer_that_finds_no_room(self):
        producer, said, told, listener = self.start_producer()

        def feed():  # more than the producer takes without an acknowledgement
            with contextlib.suppress(BrokenPipeError), producer.stdin as pipe:
                for number in range(50):
                    pipe.write(f"{number} ".ljust(1 << 20, "x") + "\n")

        feeder = threading.Thread(target=feed, daemon=True)
        feeder.start()
        self.assertTrue(told.wait(20 * TIME_FACTOR), said)
        memory = pathlib.Path(f"/proc/{producer.pid}/statm")
        last = 0
        while (now := int(memory.read_text().split()[1])) > last:  # until it takes no more
            last = now
            time.sleep(0.3)
        code, seconds = self.interrupt(producer)
        listener.join(timeout=5)
        producer.stderr.close()
        feeder.join(timeout=5)
        self.assertEqual(code, 1, said)
        self.assertLess(seconds, 2 * TIME_FACTOR, said)
        [line] = [line for line in said if re.search("messages? durable", line)]
        durable, left = map(int, re.fullmatch(
            r"tailcast: interrupted: (\d+) messages? durable, (\d+) unknown \(may be in it\)\n", line).groups())
        self.assertGreater(left, 20, line)
        code, out, err = run("consume", "--dir", self.up.dir, "--stream", "s", "--to", "end")
        self.assertEqual(code, 0, err)
        self.assertGreaterEqual(len(out.splitlines()), durable, said)

    def test_an_interrupt_ends_a_tail_that_finds_no_room(self):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder, "log")
            log.write_text("".join(f"{number} ".ljust(1 << 20, "x") + "\n" for number in range(60)))
            tail = ["tail", "--dir", self.up.dir, "--stream", "s", "--position-file", str(pathlib.Path(folder, "at")),
                    str(log)]
            with open(pathlib.Path(folder, "said"), "w+") as said:
                process = subprocess.Popen([BINARY, *tail], stderr=said)
                end = time.monotonic() + 20 * TIME_FACTOR
                while "No space left" not in pathlib.Path(folder, "said").read_text():
                    self.assertLess(time.monotonic(), end)
                    time.sleep(0.05)
                code, seconds = self.interrupt(process)
                said.seek(0)
                words = said.read()
            self.assertEqual(code, 1, words)
            self.assertLess(seconds, 2 * TIME_FACTOR, words)
            self.assertRegex(words, r"(?m)^tailcast: interrupted: .* messages? durable, \d+ unknown")
            self.assertIn("started again, it goes on where the stream ends", words)

    def test_a_tail_of_two_files_that_was_interrupted_publishes_each_line_once(self):
        with tempfile.TemporaryDirectory() as folder:
            # Where no long one is taken any more, short ones still find room.
            long_lines = [f"a{number} ".ljust(7 << 20, "x").encode() + b"\n" for number in range(10)]
            short_lines = [b"b%d %s\n" % (number, b"y" * 90) for number in range(100_000)]
            tail = ["tail", "--dir", self.up.dir, "--stream", "s", "--position-file", str(pathlib.Path(folder, "at"))]
            for name, lines in (("a", long_lines), ("b", short_lines)):
                pathlib.Path(folder, name).write_bytes(b"".join(lines))
                tail.append(str(pathlib.Path(folder, name)))
            with open(pathlib.Path(folder, "said"), "w") as said:
                process = subprocess.Popen([BINARY, *tail], stderr=said)
                memory = pathlib.Path(f"/proc/{process.pid}/statm")
                last, now = -1, 0
                while now > last or "No space left" not in pathlib.Path(folder, "said").read_text():
                    time.sleep(0.3)
                    last, now = now, int(memory.read_text().split()[1])
                process.send_signal(signal.SIGINT)
                # In the second that it has left, all that it has taken is written.
                subprocess.run(["mount", "-o", "remount,size=500m", self.up.disk.folder], check=True)
                process.wait(timeout=60 * TIME_FACTOR)
            code, _, err = run(*tail, "--until-idle", "1")
            self.assertEqual(code, 0, err)
            code, out, err = run("consume", "--dir", self.up.dir, "--stream", "s", "--to", "end")
            self.assertEqual(code, 0, err)
            got = out.splitlines(keepends=True)
            for first, lines in ((b"a", long_lines), (b"b", short_lines)):
                self.assertTrue([line for line in got if line[:1] == first] == lines)  # long, when they differ


class TroubledDisk(OneCellTest):
    """One that does not fail what is written, but the next file, or is slow."""

    def start(self, *args, env=None):
        process = subprocess.Popen([BINARY, *args], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=dict(os.environ, **(env or {})))
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def until_said(self, process, words):
        said = ""
        while words not in said:
            line = process.stderr.readline()
            self.assertTrue(line, f"it ended: {said}")
            said += line
        return said

    def without_a_next_file(self, name):
        """The stream's folder is a link to itself from now on: what is open is written, no file can be created."""
        code, out, err = run("consume", "--dir", self.up.dir, "--stream", name, "--count", "1")
        self.assertEqual((code, out), (0, b"one\n"), err)
        [folder] = pathlib.Path(self.up.dir, "here", "store", "streams", name).glob("*/00000")
        folder.rename(folder.with_name("away"))
        folder.symlink_to(folder)

    def check_interrupted(self, process):
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60 * TIME_FACTOR)[1]
        self.assertLess(time.monotonic() - began, 2 * TIME_FACTOR, said)
        self.assertEqual(process.returncode, 1, said)
        self.assertIn("tailcast: interrupted: 2 messages durable\n", said)
        self.assertRegex(said, "the files were not sealed in time, which the next producer makes up for.*"
                               "Too many levels of symbolic links")

    def until_waits(self, producer, for_input):
        """Its main thread waits for input, in a poll of 200 ms, or for something else."""
        end = time.monotonic() + 10 * TIME_FACTOR
        while True:
            try:
                call = pathlib.Path(f"/proc/{producer.pid}/syscall").read_text().split()
            except OSError as error:
                self.skipTest(f"what a process waits for can't be seen here: {error}")
            if len(call) > 3 and (call[3] == "0xc8") == for_input:
                return
            self.assertLess(time.monotonic(), end)

    def test_an_interrupt_ends_a_producer_that_cannot_seal_its_files(self):
        for number, ends_before in enumerate((False, True)):
            name = f"unsealed{number}"
            producer = self.start("produce", *self.create(name, "--file-bytes", "1000"))
            producer.stdin.write("one\n")
            producer.stdin.flush()
            self.without_a_next_file(name)
            producer.stdin.write("x" * 2000 + "\n")
            producer.stdin.flush()
            self.until_said(producer, "Too many levels of symbolic links; trying again")
            if ends_before:  # it is closing when the interrupt comes
                self.until_waits(producer, for_input=True)
                producer.stdin.close()
                self.until_waits(producer, for_input=False)
                producer.stdin = open(os.devnull)  # noqa: SIM115: closed with the rest
            self.check_interrupted(producer)

    def test_an_interrupt_ends_a_tail_that_cannot_seal_its_files(self):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder, "log")
            log.write_text("one\n")
            tail = self.start("tail", *self.create("tailed", "--file-bytes", "1000"), "--position-file",
                              str(pathlib.Path(folder, "at")), str(log))
            self.without_a_next_file("tailed")
            with log.open("a") as more:
                more.write("x" * 2000 + "\n")
            self.until_said(tail, "Too many levels of symbolic links; trying again")
            self.check_interrupted(tail)

    def test_a_tail_says_what_is_in_the_stream_before_it_keeps_that(self):
        with tempfile.TemporaryDirectory() as folder:
            places = pathlib.Path(folder, "places")
            places.mkdir()
            log = pathlib.Path(folder, "log")
            log.write_text("one\n")
            where = self.create("said")
            tail = self.start("tail", *where, "--position-file", str(places / "at"), str(log))
            code, out, err = run("consume", *where, "--count", "1")
            self.assertEqual((code, out), (0, b"one\n"), err)
            places.rename(places.with_name("away"))
            tail.send_signal(signal.SIGINT)
            said = tail.communicate(timeout=60 * TIME_FACTOR)[1]
            self.assertEqual(tail.returncode, 1, said)
            self.assertRegex(said, r"interrupted: 1 message durable\n(.*\n)*.*places/at.*No such file")

    def test_sigterm_leaves_a_slow_disk_the_time_that_it_takes(self):
        where = self.create("slow")
        producer = self.start("produce", *where, "--profile", "low-latency",
                              env={"TAILCAST_FILE_FAULTS": "flush:700ms:1"})  # two for each append
        producer.stdin.write("x\n" * 1000)  # in one read
        producer.stdin.flush()
        code, _, err = run("consume", *where, "--count", "1")
        self.assertEqual(code, 0, err)
        producer.terminate()
        said = producer.communicate(timeout=60 * TIME_FACTOR)[1]
        self.assertEqual(producer.returncode, 0, said)
        self.assertIn("interrupted: 1000 messages durable\n", said)
        code, out, err = run("consume", *where, "--to", "end")
        self.assertEqual((code, out), (0, b"x\n" * 1000), err)

    def test_who_is_ended_in_the_middle_of_a_file_does_not_say_that_it_published_it(self):
        where = self.create("part")
        path = os.path.join(self.up.root, "input")
        pathlib.Path(path).write_bytes(b"x\n" * 100000)
        with open(path, "rb") as file:
            producer = subprocess.Popen([BINARY, "produce", *where, "--rate", "500"], stdin=file, stderr=subprocess.PIPE)
        code, _, err = run("consume", *where, "--count", "1")
        self.assertEqual(code, 0, err)
        producer.terminate()
        said = producer.communicate(timeout=60 * TIME_FACTOR)[1].decode()
        self.assertEqual(producer.returncode, 1, said)
        count = int(re.search(r"interrupted: (\d+) messages? durable\n", said).group(1))
        self.assertIn(f"what comes behind {2 * count} bytes was not published", said)



class HangingDisk(SystemTest):
    def test_sigterm_ends_a_process_whose_disk_hangs(self):
        up = Up(ONE_CELL, "--profile", "low-latency")
        self.addCleanup(up.remove)
        self.assertEqual(up.stop(), 0)
        a_day = "write:86400000ms:1"
        config = os.path.join(up.dir, "here", "config", "scheduler.yaml")
        with subprocess.Popen([BINARY, "run", "--role", "scheduler", "--config", config], stderr=subprocess.PIPE,
                              text=True, env=dict(os.environ, TAILCAST_FILE_FAULTS=a_day)) as process:
            self.addCleanup(process.kill)
            said = []
            for line in process.stderr:
                said.append(line)
                if "the disk or mount hangs" in line:
                    break
            told = [line for line in said if "has not answered" in line]
            self.assertEqual(len(told), 1, said)
            self.assertIn(os.path.join(up.dir, "here", "store"), told[0])
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            code = process.wait(timeout=60 * TIME_FACTOR)
            said += process.stderr.readlines()
            self.assertLess(time.monotonic() - began, 3 * TIME_FACTOR, said)
            self.assertEqual(code, 0, said)
            self.assertIn("which may be done later", said[-2])
            self.assertIn("for a store that does not answer", said[-1])


class AwayVolume(SystemTest):
    """The folder of a cell's store is empty, as where its volume is not mounted."""

    def setUp(self):
        self.up = Up(NEAR_AND_FAR, "--caches", "1", "--readers", "1", "--writers", "1")
        self.addCleanup(self.up.close)
        code, _, err = run("stream", "create", "--dir", self.up.dir, "--stream", "s", "--cluster", "near")
        self.assertEqual(code, 0, err)

    def produce(self, text):
        code, _, err = run("produce", "--dir", self.up.dir, "--stream", "s", stdin=text)
        self.assertEqual(code, 0, err)

    def consumed(self):
        return run("consume", "--dir", self.up.dir, "--cluster", "far", "--stream", "s", "--until-idle", "0.5")[:2]

    @contextlib.contextmanager
    def away(self, cell):
        store = pathlib.Path(self.up.dir, cell, "store")
        store.rename(store.with_name("store.away"))
        store.mkdir()
        yield
        self.assertEqual([p.name for p in store.rglob("*") if p.suffix in (".data", ".index", ".log")], [])
        shutil.rmtree(store)
        store.with_name("store.away").rename(store)

    def test_nobody_writes_to_what_is_not_the_cells_store(self):
        self.produce(b"one\n")
        with self.away("near"):
            self.check_fails(1, ["not the store of cell near", "has no registry", "mounted"], "produce", "--dir",
                             self.up.dir, "--stream", "s", stdin=b"lost\n")
        with self.away("far"):
            [writer] = self.up.pids("far", "writer").values()
            os.kill(writer, signal.SIGKILL)
            log = pathlib.Path(self.up.dir, "far", "log", "writer-1.log")
            self.assertTrue(wait_until(lambda: "has no registry" in log.read_text()), log)
            self.produce(b"two\n")
        self.assertTrue(wait_until(lambda: self.consumed() == (0, b"one\ntwo\n")), self.consumed())


if __name__ == "__main__":
    main()
