"""What `consume` and `produce` carry beside bytes: places to begin and end, keys, formats, and where a run goes on."""

import datetime
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

from harness import BINARY, TIME_FACTOR, OneCellTest, SystemTest, Up, main, run


class Consume(OneCellTest):
    def produce(self, where, payload, *options):
        code, _, err = run("produce", *where, *options, stdin=payload)
        self.assertEqual(code, 0, err)

    def consume(self, where, *options):
        code, out, err = run("consume", *where, *options)
        self.assertEqual(code, 0, err)
        return out

    def rows(self, where, *options):
        return [json.loads(line) for line in self.consume(where, "--format", "json", *options).splitlines()]

    def test_json_and_templates_say_where_a_message_lies(self):
        where = self.create("said", "--shards", "2")
        self.produce(where, b"k1,a\nk2,b\n", "--shard", "1")
        self.produce(where, b"\xff\xfe\n", "--shard", "0")
        rows = self.rows(where, "--to", "end")
        text = {(row["shard"], row["number"]): row.get("payload", row.get("payload_base64")) for row in rows}
        self.assertEqual(text, {(0, 0): "//4K", (1, 0): "k1,a\n", (1, 1): "k2,b\n"})
        for row in rows:
            age = datetime.datetime.now(datetime.timezone.utc) - datetime.datetime.fromisoformat(
                row["time"].replace("Z", "+00:00"))
            self.assertLess(abs(age.total_seconds()), 60)
            # The position of a message gives it first.
            [first, *_] = self.rows(where, "--shard", str(row["shard"]), "--from", row["position"], "--to", "end")
            self.assertEqual(first, row)
        out = self.consume(where, "--shard", "1", "--to", "end", "--key", "1", "--format",
                           "{stream} {shard}/{number} {key}: {payload}")
        self.assertEqual(out, b"said 1/0 k1: k1,a\nsaid 1/1 k2: k2,b\n")
        self.check_fails(2, ["{paylod}", "did you mean 'payload'"], "consume", *where, "--format", "{paylod}")
        self.check_fails(2, ["--key FIELD"], "consume", *where, "--format", "{key}")
        self.check_fails(2, ["message 0 of shard 1", "only 2 fields"], "consume", *where, "--shard", "1", "--format",
                         "{key}", "--key", "3")

    def test_it_begins_and_ends_at_times_and_numbers(self):
        where = self.create("bounds", "--shards", "2")
        for part in (b"0\n1\n", b"2\n3\n"):
            for shard in ("0", "1"):
                self.produce(where, part, "--shard", shard)
        rows = self.rows(where, "--to", "end")
        self.assertEqual(len(rows), 8)
        for first in range(4):
            for last in range(first, 5):
                got = self.rows(where, "--from", f"number:{first}", "--to", f"number:{last}")
                self.assertEqual(sorted((r["shard"], r["number"]) for r in got),
                                 [(s, n) for s in (0, 1) for n in range(first, last)])
        time2, time3 = ({row["shard"]: row["time"] for row in rows if row["number"] == n} for n in (2, 3))
        for shard in (0, 1):
            # The end of a file is not that of the messages before a time, though the next file's lengths are known.
            got = self.rows(where, "--shard", str(shard), "--to", "time:" + time3[shard])
            self.assertEqual([r["number"] for r in got], [0, 1, 2])
            got = self.rows(where, "--shard", str(shard), "--from", "time:" + time2[shard], "--to", "end")
            self.assertEqual([r["number"] for r in got], [2, 3])
            got = self.rows(where, "--shard", str(shard), "--to", "time:" + time2[shard])
            self.assertEqual([r["number"] for r in got], [0, 1])
        self.assertEqual(len(self.rows(where, "--from", "time:-10m", "--to", "end")), 8)
        # One position for each shard, on both sides.
        position = {(row["shard"], row["number"]): row["position"] for row in rows}
        got = self.rows(where, "--from", position[0, 1], "--from", position[1, 3], "--to", position[0, 3], "--to",
                        "number:4")
        self.assertEqual(sorted((r["shard"], r["number"]) for r in got), [(0, 1), (0, 2), (1, 3)])
        self.check_fails(2, ["two positions of shard 0"], "consume", *where, "--from", position[0, 1], "--from",
                         position[0, 2])
        self.check_fails(2, ["shard 0, not of --shard 1"], "consume", *where, "--shard", "1", "--from",
                         position[0, 1])
        self.check_fails(2, ["--from", "time:-5m"], "consume", *where, "--from", "time:yesterday")
        self.check_fails(2, ["--to", "is no end"], "consume", *where, "--to", "beginning")
        self.check_fails(1, ["message 9", "not in this cell so far"], "consume", *where, "--shard", "0", "--from",
                         "number:9", "--until-idle", "0.5")

    def test_the_end_of_an_empty_stream_is_now(self):
        where = self.create("empty", "--shards", "3")
        self.assertEqual(self.consume(where, "--to", "end"), b"")

    def test_from_the_end_of_an_empty_stream_comes_all_that_is_published_from_then_on(self):
        for i in range(5):
            where = self.create(f"begun{i}", "--shards", "2")
            with tempfile.TemporaryDirectory() as folder:
                places = pathlib.Path(folder, "positions")
                consumer = subprocess.Popen([BINARY, "consume", *where, "--from", "end", "--count", "900",
                                             "--position-file", str(places)], stdout=subprocess.PIPE)
                self.addCleanup(consumer.kill)
                end = time.monotonic() + 30 * TIME_FACTOR
                while not places.exists() or places.read_text().count("\nt1.") < 2:
                    self.assertLess(time.monotonic(), end, "it never said where it begins")
                    time.sleep(0.01)
                self.assertEqual(re.findall(r"^t1\.\w+\.(\d)\.(\d+)\.", places.read_text(), re.M),
                                 [("0", "0"), ("1", "0")])
                lines = [b"%d\n" % n for n in range(900)]
                self.produce(where, b"".join(lines), "--shard", str(i % 2))
                out = consumer.communicate(timeout=30 * TIME_FACTOR)[0]
                self.assertEqual(out, b"".join(lines))

    def folder(self, name):
        [folder] = pathlib.Path(self.up.dir, "here", "store", "streams", name).glob("*/00000")
        return folder

    def test_an_end_that_cannot_be_listed_is_waited_for(self):
        where = self.create("unlisted")
        self.produce(where, b"1\n2\n")
        folder = self.folder("unlisted")
        away = folder.with_name("away")
        folder.rename(away)
        folder.touch()  # which nobody can list
        consumer = subprocess.Popen([BINARY, "consume", *where, "--to", "end"], stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, text=True)
        self.addCleanup(consumer.kill)
        said = consumer.stderr.readline()
        self.assertRegex(said, "unlisted/0: where it ends can't be found: .*Not a directory; going on to try")
        folder.unlink()
        away.rename(folder)
        self.assertEqual(consumer.communicate(timeout=30 * TIME_FACTOR)[0], "1\n2\n")
        self.assertEqual(consumer.returncode, 0)

    def test_an_end_or_a_beginning_whose_record_cannot_be_read_is_none(self):
        where = self.create("unread")
        self.produce(where, b"1\n2\n")
        for pid in self.up.pids("here", "cache").values():
            os.kill(pid, signal.SIGKILL)  # all at once: each begins empty
        faults = dict(os.environ, TAILCAST_FILE_FAULTS="read:EIO:1")
        to_end = subprocess.Popen([BINARY, "consume", *where, "--to", "end"], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, env=faults, text=True)
        self.addCleanup(to_end.kill)
        line = ""
        while "unread/0" not in line:
            line = to_end.stderr.readline()
            self.assertTrue(line, "it ended")
        self.assertRegex(line, "where it ends can't be found: read .*Input/output error; going on to try")
        to_end.send_signal(signal.SIGINT)
        out, said = to_end.communicate(timeout=30 * TIME_FACTOR)
        self.assertEqual((to_end.returncode, out), (1, ""))
        self.assertIn("interrupted before it came to the end that was asked for", said)
        done = subprocess.run([BINARY, "consume", *where, "--from", "number:1", "--until-idle", "1"],
                              capture_output=True, env=faults, text=True, timeout=60 * TIME_FACTOR)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertIn("unread/0: where it begins can't be found: read ", done.stderr)
        self.assertEqual(self.consume(where, "--to", "end"), b"1\n2\n")

    def test_an_interrupt_before_the_end_is_a_failure_and_one_of_a_follower_is_not(self):
        where = self.create("ended")
        self.produce(where, b"1\n2\n")
        for end, code in ((["--count", "3"], 1), (["--to", "number:9"], 1), (["--until-idle", "60"], 1),
                          (["--follow"], 0), ([], 0)):
            with self.subTest(end):
                consumer = subprocess.Popen([BINARY, "consume", *where, *end], stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE, text=True)
                self.addCleanup(consumer.kill)
                self.assertEqual([consumer.stdout.readline() for _ in range(2)], ["1\n", "2\n"])
                consumer.send_signal(signal.SIGINT)
                said = consumer.communicate(timeout=30 * TIME_FACTOR)[1]
                self.assertEqual(consumer.returncode, code, said)
                self.assertEqual("interrupted before it came to the end" in said, code == 1, said)

    def test_an_end_before_the_beginning_is_a_mistake(self):
        where = self.create("backwards")
        for begin, end in (("number:8", "number:7"), ("time:-1m", "time:-2m")):
            self.check_fails(2, ["--to lies before --from"], "consume", *where, "--from", begin, "--to", end)
        self.assertEqual(self.consume(where, "--from", "number:0", "--to", "number:0"), b"")

    def test_messages_of_a_key_stay_together_in_their_order(self):
        where = self.create("keys", "--shards", "4")
        lines = [b"%d,user%d\n" % (i, i % 50) for i in range(2000)]
        self.produce(where, b"".join(lines[:1000]), "--key", "2")
        self.produce(where, b"".join(lines[1000:]), "--key", "2")
        rows = self.rows(where, "--key", "2", "--to", "end")
        self.assertEqual(len(rows), 2000)
        shards = {}
        for row in rows:
            shards.setdefault(row["key"], set()).add(row["shard"])
        self.assertTrue(all(len(of_key) == 1 for of_key in shards.values()), shards)
        self.assertEqual(len(set.union(*shards.values())), 4)
        for user in range(50):
            mine = [int(row["payload"].split(",")[0]) for row in rows if row["key"] == f"user{user}"]
            self.assertEqual(mine, sorted(mine))
        self.check_fails(2, ["message 2", "not JSON", "'nonsense'"], "produce", *where, "--key", "id",
                         stdin=b'{"id": 1}\nnonsense\n')
        self.check_fails(2, ["--key or --shard"], "produce", *where, "--key", "1", "--shard", "1")

    def test_the_rate_is_kept(self):
        where = self.create("rate")
        begin = time.monotonic()
        self.produce(where, b"x\n" * 41, "--rate", "20")
        self.assertGreaterEqual(time.monotonic() - begin, 2)
        times = [datetime.datetime.fromisoformat(row["time"].replace("Z", "+00:00"))
                 for row in self.rows(where, "--to", "end")]
        self.assertGreater((times[-1] - times[0]).total_seconds(), 1.5)

    def test_an_interrupted_producer_publishes_a_beginning_of_its_input(self):
        where = self.create("interrupted")
        texts = ["".join(f"{i}\n" for i in range(20000)), "first\nsecond\nhalf of"]
        there = []
        for text in texts:
            producer = subprocess.Popen([BINARY, "produce", *where, "--rate", "500", "--profile", "low-latency"],
                                        stdin=subprocess.PIPE, stderr=subprocess.PIPE)
            producer.stdin.write(text.encode())
            producer.stdin.flush()
            before = len(there)
            end = time.monotonic() + 30 * TIME_FACTOR
            while len(there) < before + 2:
                self.assertLess(time.monotonic(), end)
                there = [row["payload"] for row in self.rows(where, "--to", "end")]
            producer.send_signal(signal.SIGINT)
            said = producer.communicate()[1].decode()
            durable = int(re.search(r"(\d+) messages? durable", said).group(1))
            self.assertEqual(producer.returncode, 0, said)
            self.assertLess(durable, 20000)
            there = [row["payload"] for row in self.rows(where, "--to", "end")]
            self.assertEqual(len(there), before + durable)
            self.assertEqual("".join(there[before:]), "".join(text.splitlines(True)[:durable]))
        self.assertEqual(there[-2:], ["first\n", "second\n"])

    def test_an_end_that_is_not_in_the_stream_is_refused(self):
        where = self.create("ends")
        self.produce(where, b"x\n")
        code, _, err = run("consume", *where, "--count", "1", "--positions")
        place = err.strip()
        self.assertEqual(run("consume", *where, "--to", place)[:2], (0, b"x\n"))
        self.check_fails(2, ["two positions of shard 0"], "consume", *where, "--to", place, "--to", place)
        self.check_fails(2, ["not of --shard 1"], "consume", *where, "--to", place, "--shard", "1")
        self.check_fails(2, ["no shard 7"], "consume", *where, "--to", re.sub(r"^(t1\.\w+)\.0", r"\1.7", place))
        self.check_fails(2, ["another stream"], "consume", *where, "--to", "t1.9f3a00c2d1e4b576.0.1.2")

    def test_a_terminal_sees_how_far_it_is(self):
        where = self.create("progress")
        producer, terminal = os.openpty()
        done = subprocess.Popen([BINARY, "produce", *where, "--rate", "10"], stdin=subprocess.PIPE, stderr=terminal)
        os.close(terminal)
        done.stdin.write(b"x\n" * 12)
        done.stdin.close()
        said = b""
        try:
            while part := os.read(producer, 4096):
                said += part
        except OSError:  # how a terminal ends
            pass
        self.assertEqual(done.wait(timeout=30 * TIME_FACTOR), 0, said)
        os.close(producer)
        self.assertRegex(said, rb"\r\d+ of \d+ messages durable, 24 B, ")
        self.assertTrue(said.endswith(b"\r\x1b[Ktailcast: 12 messages durable\r\n"), said)


class PositionFile(SystemTest):
    """In a deployment of two cells."""

    def setUp(self):
        self.up = Up("version: 1\nclusters: [{name: here}, {name: there}]\n", "--caches", "1", "--readers", "1",
                     "--writers", "1", "--profile", "low-latency")
        self.addCleanup(self.up.close)
        code, _, err = run("stream", "create", "--dir", self.up.dir, "--cluster", "here", "--stream", "s", "--shards",
                           "2")
        self.assertEqual(code, 0, err)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out, self.file = pathlib.Path(folder.name, "out"), pathlib.Path(folder.name, "positions")

    def consume(self, out, cell, *options):
        return subprocess.Popen([BINARY, "consume", "--dir", self.up.dir, "--cluster", cell, "--stream", "s", "--format",
                                 "{shard}/{number}", "--position-file", str(self.file), *options],
                                stdout=out, stderr=subprocess.PIPE)

    def saved(self):
        """Number by shard."""
        if not self.file.exists():
            return {}
        places = [line.split(".") for line in self.file.read_text().splitlines() if line.startswith("t1.")]
        return {int(place[2]): int(place[3]) for place in places}

    def check_behind(self, written):
        """No position lies ahead of what was written whole."""
        lines = written.decode().split("\n")[:-1]
        for shard, number in self.saved().items():
            there = {int(line.split("/")[1]) for line in lines if line.startswith(f"{shard}/")}
            self.assertTrue(there.issuperset(range(number)), f"shard {shard}: {number}")
        return lines

    def test_it_survives_kill_9_and_goes_on_in_any_cell(self):
        producers = [subprocess.Popen([BINARY, "produce", "--dir", self.up.dir, "--stream", "s", "--shard", str(shard),
                                       "--rate", "4000", "--quiet"], stdin=subprocess.PIPE) for shard in (0, 1)]
        total = 20000
        for producer in producers:
            producer.stdin.write(b"x\n" * (total // 2))
            producer.stdin.close()
        before = 0
        for i in range(6):
            with self.out.open("ab") as out:
                consumer = self.consume(out, ("here", "there")[i % 2])
                end = time.monotonic() + 60 * TIME_FACTOR
                while sum(self.saved().values()) < min(before + 1000, total):
                    self.assertLess(time.monotonic(), end, consumer.poll())
                    time.sleep(0.001 * i)
                consumer.kill()
                consumer.wait()
                consumer.stderr.close()
            whole = self.out.read_bytes()
            os.truncate(self.out, whole.rfind(b"\n") + 1)  # of the last line it may have written a part
            self.check_behind(whole)
            self.assertGreaterEqual(sum(self.saved().values()), before)
            before = sum(self.saved().values())
        for producer in producers:
            self.assertEqual(producer.wait(timeout=60 * TIME_FACTOR), 0)
        with self.out.open("ab") as out:
            consumer = self.consume(out, "there", "--to", f"number:{total // 2}")
            self.assertEqual(consumer.wait(timeout=60 * TIME_FACTOR), 0, consumer.stderr.read())
            consumer.stderr.close()
        lines = self.check_behind(self.out.read_bytes())
        self.assertEqual(self.saved(), {0: total // 2, 1: total // 2})
        self.assertEqual(len(set(lines)), total)

    def test_what_nobody_read_of_a_pipe_is_not_behind(self):
        code, _, err = run("produce", "--dir", self.up.dir, "--stream", "s", stdin=b"x\n" * 20000)
        self.assertEqual(code, 0, err)
        consumer = self.consume(subprocess.PIPE, "here")
        read = b""
        end = time.monotonic() + 60 * TIME_FACTOR
        while self.saved().get(0, 0) == 0:
            self.assertLess(time.monotonic(), end)
            read += os.read(consumer.stdout.fileno(), 100)
        consumer.kill()
        consumer.wait()
        self.check_behind(read)
        consumer.stdout.close()
        consumer.stderr.close()

    def test_a_file_that_is_none_of_its_own_is_refused(self):
        self.file.write_text("# mine\nt1.0000000000000007.0.1.2\n")
        where = ("--dir", self.up.dir, "--cluster", "here", "--stream", "s", "--position-file", str(self.file))
        self.check_fails(2, ["not one of stream 's'"], "consume", *where)
        self.file.write_text("what\n")
        self.check_fails(1, [f"{self.file}:1:", "remove the file"], "consume", *where)
        self.check_fails(1, ["--position-file", "/no/where.part"], "consume", *where[:-1], "/no/where")


if __name__ == "__main__":
    main()
