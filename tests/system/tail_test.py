"""`tailcast tail`: each line of files that grow comes once, through rotation, truncation and random kills."""

import os
import pathlib
import random
import re
import signal
import subprocess
import tempfile
import time
import unittest

from harness import BINARY, TIME_FACTOR, OneCellTest, main, run


class Tail(OneCellTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.log = self.folder / "app.log"
        self.places = self.folder / "places"
        self.said = self.folder / "said"

    def create(self, name, *options):
        self.where = super().create(name, *options)

    def command(self, *options):
        return ["tail", *self.where, "--position-file", str(self.places), "--profile", "low-latency", str(self.log),
                *options]

    def start(self, *options):
        with self.said.open("ab") as said:
            tail = subprocess.Popen([BINARY, *self.command(*options)], stderr=said)
        self.addCleanup(tail.kill)
        return tail

    def finish(self, *options):
        """Runs it until nothing comes; what it said."""
        code, _, err = run(*self.command("--until-idle", "1", *options))
        self.assertEqual(code, 0, err)
        return err

    def stream(self, *options):
        code, out, err = run("consume", *self.where, "--to", "end", *options)
        self.assertEqual(code, 0, err)
        return out

    def until(self, condition, what):
        end = time.monotonic() + 30 * TIME_FACTOR
        while not condition():
            self.assertLess(time.monotonic(), end, f"{what}: {self.said.read_text() if self.said.exists() else ''}")
            time.sleep(0.01)

    def append(self, data, path=None):
        with (path or self.log).open("ab") as file:
            file.write(data)

    def rename(self):
        """As logrotate does, with 4 old files."""
        for i in range(4, 0, -1):
            if (old := self.folder / f"app.log.{i}").exists():
                old.rename(self.folder / f"app.log.{i + 1}")
        self.log.rename(self.folder / "app.log.1")
        self.log.touch()

    def copytruncate(self):
        for i in range(4, 0, -1):
            if (old := self.folder / f"app.log.{i}").exists():
                old.rename(self.folder / f"app.log.{i + 1}")
        (self.folder / "app.log.1").write_bytes(self.log.read_bytes())
        os.truncate(self.log, 0)

    def test_lines_come_as_they_are_written_and_a_part_of_one_waits(self):
        self.create("lines")
        tail = self.start()  # the file is not there yet
        self.until(lambda: "No such file or directory; waiting for it" in self.said.read_text(), "a word")
        self.append(b"one\ntwo\nthr")
        self.until(lambda: self.stream() == b"one\ntwo\n", "two lines")
        self.append(b"ee\n")
        self.until(lambda: self.stream() == b"one\ntwo\nthree\n", "three lines")
        self.append(b"half")
        time.sleep(0.3)
        tail.send_signal(signal.SIGINT)
        self.assertEqual(tail.wait(timeout=30 * TIME_FACTOR), 0)
        self.assertRegex(self.said.read_text(), "interrupted: 3 messages durable\n.*4 bytes of an unfinished line wait\n")
        self.append(b" and half\n")
        self.finish()
        self.assertEqual(self.stream(), b"one\ntwo\nthree\nhalf and half\n")

    def chaos(self, seed, rotate):
        """A writer that rotates, a tail that is killed at random; the lines, as they were written."""
        rng = random.Random(seed)
        written = []
        written.append(b"first\n")
        self.append(b"first\n")
        self.finish()
        for step in range(25):
            begun = self.said.read_text().count("from byte") if self.said.exists() else 0
            tail = self.start("--takeover")
            self.until(lambda: self.said.read_text().count("from byte") > begun, "a beginning")
            end = time.monotonic() + rng.uniform(0, 0.7)
            while time.monotonic() < end:
                for _ in range(rng.randrange(1, 200)):
                    line = b"%d %s\n" % (len(written), b"." * rng.randrange(60))
                    written.append(line)
                    if rng.random() < 0.01:  # a line in two parts
                        self.append(line[:3])
                        self.append(line[3:])
                    else:
                        self.append(line)
                time.sleep(rng.uniform(0, 0.02))
            if rng.random() < 0.5:
                rotate()
            tail.kill()
            tail.wait()
            if rng.random() < 0.3:
                rotate()
        said = self.finish()
        got = self.stream().splitlines(True)
        for i, (a, b) in enumerate(zip(got, written)):
            self.assertEqual(a, b, f"seed {seed}: message {i}; {said}\n{self.said.read_text()}")
        self.assertEqual(len(got), len(written), f"seed {seed}: {said}\n{self.said.read_text()}")
        self.assertNotIn("lost", self.said.read_text() + said)

    def test_nothing_twice_nothing_lost_through_renames_and_kills(self):
        self.create("renamed")
        self.chaos(random.randrange(1 << 30), self.rename)

    def test_nothing_twice_nothing_lost_through_truncation_and_kills(self):
        self.create("truncated")
        self.chaos(random.randrange(1 << 30), self.copytruncate)

    def test_several_files_share_a_shard(self):
        self.create("several")
        files = [self.folder / f"{i}.log" for i in range(5)]
        self.log = files[0]
        for step in range(4):
            for i, path in enumerate(files):
                self.append(b"".join(b"%d %d %d\n" % (i, step, n) for n in range(300)), path)
            tail = self.start("--takeover", *map(str, files[1:]))
            time.sleep(0.1 * step)
            tail.kill()
            tail.wait()
        self.finish(*map(str, files[1:]))
        out = self.stream()
        for i, path in enumerate(files):
            mine = b"".join(line for line in out.splitlines(True) if line.startswith(b"%d " % i))
            self.assertEqual(mine, path.read_bytes())

    def test_where_files_begin_is_kept_before_anything_is_published(self):
        self.create("quiet")
        self.append(b"long ago\n")
        tail = self.start("--from", "end")
        self.until(lambda: self.said.exists() and "from byte 9" in self.said.read_text(), "a beginning")
        tail.kill()
        tail.wait()
        self.append(b"one\ntwo\n")
        self.finish("--from", "end")
        self.assertEqual(self.stream(), b"one\ntwo\n")
        # Empty at first, and rotated while nobody ran.
        self.create("empty")
        self.places = self.folder / "places2"
        self.log = self.folder / "b.log"
        self.log.touch()
        tail = self.start()
        self.until(lambda: "b.log: from byte 0" in self.said.read_text(), "a beginning")
        tail.kill()
        tail.wait()
        self.append(b"one\n")
        self.log.rename(self.folder / "b.log.1")
        self.append(b"two\n")
        self.finish()
        self.assertEqual(self.stream(), b"one\ntwo\n")

    def test_what_can_be_refused_is_refused_before_the_shard_is_taken(self):
        self.create("taken")
        self.append(b"one\n")
        first = self.start()
        self.until(lambda: self.stream() == b"one\n", "a first line")
        self.places = self.folder / "bad"
        self.places.write_text("what\n")
        self.check_fails(1, ["line 1"], *self.command("--takeover"))
        self.places = self.folder / "good"
        self.check_fails(2, ["is no regular file"], *self.command("--takeover", "/dev/null"))
        self.append(b"two\n")
        self.until(lambda: self.stream() == b"one\ntwo\n", "a second line")
        # Who was taken over from does not go on where the stream ends.
        log, self.log = self.log, self.folder / "other.log"
        self.append(b"three\n")
        self.finish("--takeover")
        self.append(b"four\n", log)
        self.assertEqual(first.wait(timeout=30 * TIME_FACTOR), 1)
        self.assertNotIn("started again", self.said.read_text())

    def test_what_lies_beside_a_file_is_not_taken_for_it(self):
        self.create("beside")
        self.places = self.folder / "app.log.1234"
        errors = self.folder / "app.log.err"
        self.append(b"one\n")
        self.append(b"error\n", errors)
        self.finish(str(errors))
        self.append(b"two\n")
        self.log.rename(self.folder / "app.log-20130131")
        self.append(b"three\n")
        self.append(b"another\n", errors)
        self.append(b"noise\n", self.folder / "app.log~")
        self.append(b"noise\n", self.folder / "app.log-20130131.gpg")
        self.finish(str(errors))
        lines = self.stream().splitlines(True)
        self.assertEqual(sorted(lines), sorted([b"one\n", b"two\n", b"three\n", b"error\n", b"another\n"]))
        for bad, why in ((self.log, "is given twice"), (self.folder / "." / "app.log.3", "may be rotated to"),
                         (self.places, "is the position file")):
            self.check_fails(2, [why], *self.command(str(bad)))
        (self.folder / "link").symlink_to(self.log)
        self.check_fails(2, ["is given twice"], *self.command(str(self.folder / "link")))

    def test_what_is_gone_is_told_with_its_bytes(self):
        self.create("gone")
        self.append(b"one\nunfinished")
        self.finish()
        self.log.unlink()
        self.append(b"two\n")
        self.assertRegex(self.finish(), r"10 bytes of it from byte 4 on are lost")
        self.assertEqual(self.stream(), b"one\ntwo\n")

    def test_bad_use_is_explained(self):
        self.create("bad", "--shards", "2")
        self.append(b"one\n")
        first = self.start()
        self.until(lambda: self.places.exists() and self.stream() == b"one\n", "a first line")
        self.check_fails(1, ["another `tailcast tail` runs"], *self.command())
        first.send_signal(signal.SIGINT)
        self.assertEqual(first.wait(timeout=30 * TIME_FACTOR), 0)
        # Somebody else's messages in the shard.
        code, _, err = run("produce", *self.where, stdin=b"foreign\n")
        self.assertEqual(code, 0, err)
        self.append(b"two\n")
        self.check_fails(1, ["the last message of shard 0", "somebody else publishes"], *self.command())
        self.assertEqual(self.stream(), b"one\nforeign\n")
        # One that has the very line, but bytes of headers before it.
        self.create("headed")
        self.places.unlink()
        self.log.write_bytes(b"one\none\n")
        self.finish()
        code, _, err = run("produce", *self.where, "--header", "h=1", stdin=b"one\n")
        self.assertEqual(code, 0, err)
        self.append(b"two\n" * 10)
        self.check_fails(1, ["the last message of shard 0", "somebody else publishes"], *self.command())
        self.create("other")
        self.check_fails(2, ["is of another stream", "remove it"], *self.command())
        self.places.write_text("what\n")
        self.check_fails(1, [str(self.places), "line 1"], *self.command())
        self.check_fails(2, ["is no regular file"], "tail", *self.where, "--position-file", str(self.folder / "p"),
                         "/dev/null")
        self.check_fails(2, ["is a folder"], "tail", *self.where, "--position-file", str(self.folder), str(self.log))
        self.check_fails(1, ["no/where"], "tail", *self.where, "--position-file", "/no/where", str(self.log))
        self.assertEqual(re.findall(r"--position-file", run("tail", *self.where, str(self.log))[2])[:1],
                         ["--position-file"])


if __name__ == "__main__":
    main()
