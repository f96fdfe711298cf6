"""What a person reads on standard error while a deployment is away, moves, or was never there; and what a wrong
name, position or folder is answered."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from harness import BINARY, ONE_CELL, TIME_FACTOR, SystemTest, Up, main, run

SMALL = ("--caches", "1", "--readers", "1", "--writers", "1")


class Running:
    """A command that goes on, whose output is listened to."""

    def __init__(self, test, *args):
        self.process = subprocess.Popen([BINARY, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.said, self.out = [], []
        self.changed = threading.Condition()
        self.listeners = [threading.Thread(target=self._listen, args=(pipe, lines), daemon=True)
                          for pipe, lines in ((self.process.stderr, self.said), (self.process.stdout, self.out))]
        for listener in self.listeners:
            listener.start()
        test.addCleanup(lambda: self.process.poll() is None and self.process.kill())

    def _listen(self, pipe, lines):
        for line in pipe:
            with self.changed:
                lines.append(line.rstrip("\n"))
                self.changed.notify_all()

    def _wait(self, lines, text, timeout):
        with self.changed:
            if not self.changed.wait_for(lambda: any(text in s for s in lines), timeout * TIME_FACTOR):
                raise AssertionError(f"no {text!r} in {self.said} {self.out}")
            return next(s for s in lines if text in s)

    def says(self, text, timeout=10):
        return self._wait(self.said, text, timeout)

    def gives(self, text, timeout=10):
        return self._wait(self.out, text, timeout)

    def put(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def end(self, how=None):
        """Its exit code, after the end of its input, or this signal."""
        if how is None:
            self.process.stdin.close()
        else:
            self.process.send_signal(how)
        code = self.process.wait(timeout=60 * TIME_FACTOR)
        for listener in self.listeners:
            listener.join(timeout=5)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            pipe.close()
        return code


class Away(SystemTest):
    def setUp(self):
        self.up = Up(ONE_CELL, *SMALL)
        self.addCleanup(self.up.remove)
        self.runs = True
        self.addCleanup(lambda: self.runs and self.up.stop())
        code, _, err = run("stream", "create", "--dir", self.up.dir, "--stream", "s")
        self.assertEqual(code, 0, err)

    def users(self):
        producer = Running(self, "produce", "--dir", self.up.dir, "--stream", "s")
        consumer = Running(self, "consume", "--dir", self.up.dir, "--stream", "s", "--follow")
        producer.put("before")
        consumer.gives("before")
        return producer, consumer

    def stop(self):
        self.runs = False
        self.up.stop()

    def start(self):
        self.up.start()
        self.runs = True

    def address(self):
        text = pathlib.Path(self.up.dir, "here", "config", "scheduler.yaml").read_text()
        return re.search(r"^scheduler: \"?([0-9.:]+)", text, re.MULTILINE).group(1)

    def check_restart(self, before_start):
        producer, consumer = self.users()
        before = self.address()
        self.stop()
        for user in (producer, consumer):
            user.says(f"cell here: its scheduler at {before} does not answer")
        before_start(before)
        self.start()
        after = self.address()
        for user in (producer, consumer):
            user.says(f"cell here answers again, at {after}")
        producer.put("after")
        consumer.gives("after")
        self.assertEqual(producer.end(), 0, producer.said)
        self.assertEqual(consumer.end(signal.SIGINT), 0, consumer.said)
        self.assertEqual(consumer.out, ["before", "after"])
        return before, after

    def test_users_say_when_their_cell_is_lost_and_when_it_is_found(self):
        before, after = self.check_restart(lambda address: None)
        self.assertEqual(before, after)

    def test_a_cell_that_had_to_move_is_found_where_it_is_now(self):
        squatter = socket.socket()
        self.addCleanup(squatter.close)

        def take(address):
            squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            squatter.bind(("127.0.0.1", int(address.rsplit(":", 1)[1])))
            squatter.listen()

        before, after = self.check_restart(take)
        self.assertNotEqual(before, after)

    def test_a_producer_that_ends_without_its_cell_says_what_became_of_its_messages(self):
        producer, consumer = self.users()
        self.stop()
        producer.says("does not answer")
        producer.put("alone")
        self.assertEqual(producer.end(), 0, producer.said)
        producer.says("2 messages durable")
        producer.says("does not run")
        producer.says("other cells get it when that runs again")
        self.assertEqual(consumer.end(signal.SIGINT), 0, consumer.said)


class Processes(SystemTest):
    def test_processes_find_a_scheduler_that_was_started_elsewhere(self):
        up = Up(ONE_CELL, *SMALL)
        self.addCleanup(up.remove)
        up.stop()  # its folder and configurations are what is wanted
        config = pathlib.Path(up.dir, "here", "config")

        def start(name):
            return Running(self, "run", "--role", name.split("-")[0], "--config", str(config / f"{name}.yaml"))

        def await_processes(address):
            end = time.monotonic() + 20 * TIME_FACTOR
            while True:
                code, out, _ = run("status", "--cell", address, "--json")
                cell = json.loads(out)["cells"][0] if code == 0 else {"processes": []}
                there = {p["name"] for p in cell["processes"] if p["state"] == "up"}
                if {"cache-1", "reader-1", "writer-1"} <= there:
                    return
                self.assertLess(time.monotonic(), end, there)

        scheduler = start("scheduler")
        others = [start(name) for name in ("cache-1", "reader-1", "writer-1")]
        text = (config / "scheduler.yaml").read_text()
        before = re.search(r"^scheduler: \"?([0-9.:]+)", text, re.MULTILINE).group(1)
        await_processes(before)
        scheduler.end(signal.SIGTERM)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            after = f"127.0.0.1:{free.getsockname()[1]}"
        (config / "scheduler.yaml").write_text(text.replace(before, after))
        scheduler = start("scheduler")
        await_processes(after)
        for process in [*others, scheduler]:
            process.end(signal.SIGTERM)


class Rows(SystemTest):
    def test_what_no_cache_has_is_not_0_bytes_of_the_stream(self):
        up = Up("version: 1\nclusters: [{name: here}, {name: there}]\n", *SMALL)
        self.addCleanup(up.close)
        code, _, err = run("stream", "create", "--dir", up.dir, "--cluster", "here", "--stream", "s")
        self.assertEqual(code, 0, err)
        producer = Running(self, "produce", "--dir", up.dir, "--stream", "s")
        consumer = Running(self, "consume", "--dir", up.dir, "--cluster", "there", "--stream", "s")
        producer.put("one")
        consumer.gives("one")
        for user in (producer, consumer):
            user.end(signal.SIGKILL)
        up.stop()  # its caches forget
        up.start()
        row = r"(?m)^  s/0 #1 +there +cache +running .*  (\S+ \S+)$"
        end = time.monotonic() + 20 * TIME_FACTOR
        while (found := re.search(row, run("status", "--dir", up.dir, "--cluster", "here", "--all")[1].decode())) is None:
            self.assertLess(time.monotonic(), end, "the operation runs again")
        self.assertEqual(found.group(1), "nothing cached")


class Words(SystemTest):
    def test_who_waits_for_a_cell_that_is_not_there_says_so(self):
        # What is said of a name depends on whether there is somebody here to ask for names.
        for where, why in (("127.0.0.1:1", r"nothing listens there \(connection refused\)"),
                           ("no-such-host.invalid:7400", "no host is known by that name|the name could not be looked up|"
                                                         "no answer in time")):
            user = Running(self, "consume", "--cell", where, "--stream", "s")
            line = user.says("still trying", 10)
            self.assertRegex(line, f"no scheduler answers at {where}: ({why}); still trying$")
            user.end(signal.SIGKILL)

    def test_a_refused_up_leaves_no_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            new = os.path.join(folder, "d")
            for options in (["--storage", "nonsense"], ["--data-cache-bytes", "x"]):
                self.check_fails(2, [options[0]], "up", "--dir", new, *options)
                self.assertFalse(os.path.exists(new), options)
            os.mkdir(new)
            kept = pathlib.Path(new, "mine")
            kept.write_text("kept")
            self.check_fails(2, ["--storage"], "up", "--dir", new, "--storage", "nonsense")
            self.assertEqual(kept.read_text(), "kept", "a folder that was there before is left alone")


class WordsOfACell(SystemTest):
    @classmethod
    def setUpClass(cls):
        cls.up = Up(ONE_CELL, *SMALL)
        cls.addClassCleanup(cls.up.close)
        for name in ("s", "other"):
            code, _, err = run("stream", "create", "--dir", cls.up.dir, "--stream", name)
            assert code == 0, err
        code, _, err = run("produce", "--dir", cls.up.dir, "--stream", "s", stdin=b"one\ntwo\nthree\n")
        assert code == 0, err

    def position(self):
        code, out, err = run("consume", "--dir", self.up.dir, "--stream", "s", "--count", "3", "--positions")
        self.assertEqual((code, out), (0, b"one\ntwo\nthree\n"), err)
        return err.strip()

    def test_a_position_of_another_stream_is_told_from_one_of_a_former_one(self):
        self.check_fails(2, [f"position {self.position()} is not one of stream 'other', but of stream 's'"],
                         "consume", "--dir", self.up.dir, "--stream", "other", "--from", self.position())
        former = re.sub(r"\.[0-9a-f]{16}\.", ".0123456789abcdef.", self.position())
        self.check_fails(2, ["as it is now", "deleted and created again"],
                         "consume", "--dir", self.up.dir, "--stream", "s", "--from", former)

    def test_a_position_behind_the_last_message_is_waited_for_with_words(self):
        head, shard, number, byte = self.position().rsplit(".", 3)
        beyond = f"{head}.{shard}.{int(number) + 100}.{int(byte) + 1000}"
        user = Running(self, "consume", "--dir", self.up.dir, "--stream", "s", "--from", beyond)
        user.says("it is to begin at message 103, which is not in this cell: it has 3 so far", 20)
        user.end(signal.SIGINT)

    def test_commands_about_streams_need_no_cell(self):
        up = Up("version: 1\nclusters: [{name: a}, {name: b}]\n", *SMALL)
        self.addCleanup(up.close)
        for cell, name in (("b", "z"), ("a", "y")):
            code, _, err = run("stream", "create", "--dir", up.dir, "--cluster", cell, "--stream", name)
            self.assertEqual(code, 0, err)
        code, out, err = run("stream", "list", "--dir", up.dir)
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out.decode(), r"\Ay +1 shard +from a to 1 cell\nz +1 shard +from b to 1 cell\n\Z")
        code, out, err = run("stream", "describe", "--dir", up.dir, "--stream", "z")
        self.assertEqual(code, 0, err)
        self.assertRegex(out.decode(), r"(?m)^  source +b$")
        self.check_fails(1, ["no stream 'nope'; known: y, z\n"], "status", "--dir", up.dir, "--stream", "nope")
        self.check_fails(2, ["unknown option --cluster: all cells of the stream are compared"], "verify",
                         "--cluster", "here", "--stream", "s")
        self.check_fails(2, ["unknown option --cluster: a stream is published where its source is"],
                         "produce", "--dir", up.dir, "--stream", "z", "--cluster", "a")

    def test_a_stream_without_destinations_is_in_its_source_alone(self):
        code, out, err = run("stream", "list", "--dir", self.up.dir)
        self.assertEqual(code, 0, err)
        self.assertRegex(out.decode(), r"(?m)^s +1 shard +in here alone$")

    def test_a_name_of_which_no_letter_is_right_is_not_proposed(self):
        err = self.check_fails(1, ["no stream 'z'", "known: other, s"],
                               "consume", "--dir", self.up.dir, "--stream", "z")
        self.assertNotIn("did you mean", err)

    @unittest.skipIf(os.geteuid() != 0, "becomes another user, which only root may")
    def test_another_user_is_told_what_he_may_not_see(self):
        def as_nobody(*args):
            done = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", BINARY, *args],
                                  capture_output=True, timeout=60 * TIME_FACTOR)
            return done.returncode, done.stdout.decode(), done.stderr.decode()

        code, _, err = as_nobody("status", "--dir", self.up.dir)
        self.assertEqual(code, 1, err)
        self.assertIn("Permission denied", err)
        self.assertNotIn("does not run", err)
        os.chmod(self.up.root, 0o755)
        code, out, err = as_nobody("status", "--dir", self.up.dir)
        self.assertEqual(code, 0, err)
        self.assertRegex(out, r"(?m)^here +[1-9w]")


if __name__ == "__main__":
    main()
