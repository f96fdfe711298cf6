"""What a stream keeps, in every cell: by size, by an operator's word; what a consumer is told of what
is gone; and a producer that waits for a cell that lacks what has to go."""

import json
import os
import pathlib
import re
import signal
import subprocess

from harness import BINARY, NEAR_AND_FAR, TIME_FACTOR, SystemTest, Up, main, run, wait_until

FILE = 256 << 10


def messages(begin, count):
    return b"".join(b"%09d %s\n" % (n, b"x" * 989) for n in range(begin, begin + count))


class Retention(SystemTest):
    def setUp(self):
        self.up = Up(NEAR_AND_FAR)
        self.addCleanup(self.up.close)

    def tailcast(self, *args, stdin=b""):
        code, out, err = run(args[0], *args[1:2], "--dir", self.up.dir, *args[2:], stdin=stdin)
        self.assertEqual(code, 0, err)
        return out.decode(), err

    def create(self, *options):
        self.tailcast("stream", "create", "--cluster", "near", "--stream", "s", "--file-bytes", str(FILE),
                      *options)

    def produce(self, begin, count):
        code, _, err = run("produce", "--dir", self.up.dir, "--stream", "s", stdin=messages(begin, count))
        self.assertEqual(code, 0, err)

    def files(self, cell):
        """The numbers of the data files in the cell, and the floor of its marker."""
        numbers, floor = [], 1
        for path in pathlib.Path(self.up.dir, cell, "store", "streams", "s").glob("*/00000/0*"):
            number = int(path.name[:10])
            if path.name.endswith(".floor"):
                floor = max(floor, number)
            elif path.name.endswith(".data"):
                numbers.append(number)
        return sorted(numbers), floor

    def wait_for_floor(self, cell, floor):
        def there():
            numbers, marked = self.files(cell)
            return marked >= floor and numbers and numbers[0] == marked
        self.assertTrue(wait_until(there), f"{cell}: {self.files(cell)}")

    def test_size_keeps_the_newest_files_in_every_cell_and_consumers_are_told(self):
        self.create("--max-shard-bytes", str(4 * FILE))
        out, _ = self.tailcast("stream", "describe", "--cluster", "near", "--stream", "s")
        self.assertIn("1.049 MB of each shard (then the producer waits", out)
        self.produce(0, 100)
        code, _, positions = run("consume", "--dir", self.up.dir, "--cluster", "far", "--stream", "s",
                                 "--count", "10", "--positions")
        self.assertEqual(code, 0, positions)
        self.produce(100, 4000)  # 4 MB: sixteen files
        for cell in ("near", "far"):
            self.wait_for_floor(cell, 8)
            self.assertLessEqual(len(self.files(cell)[0]), 6)
        # From the beginning is from what is there; it is whole to the end, and the same everywhere.
        read = {}
        for cell in ("near", "far"):
            code, out, err = run("consume", "--dir", self.up.dir, "--cluster", cell, "--stream", "s",
                                 "--until-idle", "2")
            self.assertEqual(code, 0, err)
            read[cell] = out
            self.assertTrue(messages(0, 4100).endswith(out))
            self.assertGreater(len(out), 3 * FILE)
        self.assertEqual(read["near"], read["far"])
        # From a place that is gone: said, with the first one that is there; and skipped if asked to.
        place = ["--from", positions.strip()]
        code, out, err = run("consume", "--dir", self.up.dir, "--cluster", "far", "--stream", "s", *place,
                             "--until-idle", "2")
        self.assertEqual((code, out), (1, b""), err)
        for word in ("the first available one is t1.", "--on-gap skip"):
            self.assertIn(word, err)
        code, out, err = run("consume", "--dir", self.up.dir, "--cluster", "far", "--stream", "s", *place,
                             "--until-idle", "2", "--on-gap", "skip")
        self.assertEqual((code, out), (0, read["far"]), err)
        self.assertIn("are not kept any more; going on at t1.", err)

    def test_an_operator_trims_and_may_change_his_mind(self):
        self.create()
        self.produce(0, 2000)
        code, _, positions = run("consume", "--dir", self.up.dir, "--cluster", "near", "--stream", "s",
                                 "--count", "1000", "--positions")
        self.assertEqual(code, 0)
        out, _ = self.tailcast("stream", "trim", "--stream", "s", "--before", positions.strip())
        floor = int(re.search(r"file (\d+)", out).group(1))
        self.assertEqual(floor, 4)
        for cell in ("near", "far"):
            self.wait_for_floor(cell, floor)
        code, out, err = run("consume", "--dir", self.up.dir, "--cluster", "far", "--stream", "s", "--from",
                             positions.strip(), "--until-idle", "2")
        self.assertEqual((code, out), (0, messages(1000, 1000)), err)
        # A file of positions keeps the one at which it cannot go on: what was missed is said again.
        file = pathlib.Path(self.up.dir, "positions")
        file.write_text(re.sub(r"\.1000\.\d+$", ".0.0", positions.strip()) + "\n")
        for _ in range(2):
            code, out, err = run("consume", "--dir", self.up.dir, "--cluster", "far", "--stream", "s",
                                 "--position-file", file, "--from", "end", "--until-idle", "2")
            self.assertEqual((code, out), (1, b""), err)
            self.assertIn("--on-gap skip", err)
        self.tailcast("stream", "retain", "--stream", "s", "--max-shard-bytes", str(FILE))
        for cell in ("near", "far"):
            self.wait_for_floor(cell, 7)

    def test_a_stream_whose_source_lost_its_registry_is_deleted_by_who_is_sure(self):
        self.create()
        self.produce(0, 300)
        where = ["--dir", self.up.dir, "--stream", "s"]
        self.assertTrue(wait_until(lambda: self.files("far")[0]), self.files("far"))
        self.check_fails(1, ["near", "knows it"], "stream", "delete", *where, "--yes", "--forgotten")
        self.assertEqual(self.up.stop(), 0)
        registry = pathlib.Path(self.up.dir, "near", "store", "registry")
        registry.rename(registry.with_name("registry.lost"))
        self.up.start()
        self.assertTrue(self.files("near")[0] and self.files("far")[0])
        self.check_fails(1, ["far", "--forgotten"], "stream", "create", *where, "--cluster", "near")
        self.check_fails(2, ["--yes"], "stream", "delete", *where, "--forgotten")
        self.assertIn("is deleted in far, near", self.tailcast("stream", "delete", "--stream", "s", "--yes",
                                                              "--forgotten")[0])
        for cell in ("near", "far"):
            self.assertTrue(wait_until(lambda c=cell: not self.files(c)[0]), self.files(cell))
        self.create()
        self.produce(1000, 10)
        code, out, err = run("consume", *where, "--cluster", "far", "--count", "10")
        self.assertEqual((code, out), (0, messages(1000, 10)), err)

    def test_mistakes(self):
        self.create()
        self.check_fails(2, ["--max-shard-bytes"], "stream", "retain", "--dir", self.up.dir, "--stream", "s",
                         "--when-full", "drop")
        self.check_fails(2, ["say what is kept"], "stream", "retain", "--dir", self.up.dir, "--stream", "s")
        self.check_fails(2, ["--max-age"], "stream", "retain", "--dir", self.up.dir, "--stream", "s",
                         "--max-age", "soon")
        # What a slip of the hand would take away stays.
        for option, value, says in (("--max-age", "7", "7d"), ("--away-max", "12", "12h"),
                                    ("--max-age", "99999999999d", "36500d"),
                                    ("--max-shard-bytes", "10", "10GB"), ("--file-bytes", "64", "1000")):
            self.check_fails(2, [option, says], "stream", "retain", "--dir", self.up.dir, "--stream", "s",
                             option, value)
        # What was said stays: also that a cell may be away for however long.
        for options in (["--away-max", "0"], ["--max-age", "31d"]):
            code, out, err = run("stream", "retain", "--dir", self.up.dir, "--stream", "s", *options)
            self.assertEqual(code, 0, err)
            self.assertNotIn(b"away", out)
        self.check_fails(2, ["--before"], "stream", "trim", "--dir", self.up.dir, "--stream", "s", "--before",
                         "yesterday")
        self.check_fails(1, ["another stream"], "stream", "trim", "--dir", self.up.dir, "--stream", "s",
                         "--before", "t1.9f3a00c2d1e4b576.0.16842.17251200")
        self.check_fails(1, ["near", "there"], "stream", "retain", "--dir", self.up.dir, "--cluster", "far",
                         "--stream", "s", "--max-age", "1d")

    def test_a_producer_waits_for_a_cell_and_says_so_and_drop_does_not(self):
        self.create("--max-shard-bytes", str(2 * FILE))
        # The far cell's writers and scheduler stand still: it gets nothing, and answers nothing.
        stopped = [*self.up.pids("far", "writer").values(), *self.up.pids("far", "scheduler").values()]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            producer = subprocess.Popen([BINARY, "produce", "--dir", self.up.dir, "--stream", "s"],
                                        stdin=subprocess.PIPE, stderr=subprocess.PIPE)
            self.addCleanup(producer.stderr.close)
            producer.stdin.write(messages(0, 3000))  # twelve files
            producer.stdin.close()
            said = producer.stderr.readline().decode()
            self.assertIn("are its limit", said)
            self.assertIn("tailcast status", said)
            numbers, floor = self.files("near")
            self.assertEqual(floor, 1)
            self.assertLessEqual(len(numbers), 4)
            self.assertIn("old files stay for cell far", run("status", "--dir", self.up.dir)[1].decode())
            self.assertIsNone(producer.poll())
            # Somebody decides that the near cell is worth more.
            self.tailcast("stream", "retain", "--stream", "s", "--when-full", "drop")
            self.assertEqual(producer.wait(timeout=60 * TIME_FACTOR), 0)
            self.wait_for_floor("near", 8)
            out = json.loads(run("stream", "describe", "--dir", self.up.dir, "--cluster", "near", "--stream",
                                 "s", "--json")[1])
            self.assertEqual(out["left_out"], ["far"])
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        # It comes back with a gap, and that is all that it lacks.
        self.wait_for_floor("far", 8)
        def taken_in():
            out = json.loads(run("stream", "describe", "--dir", self.up.dir, "--cluster", "near", "--stream",
                                 "s", "--json")[1])
            return out["left_out"] == []
        self.assertTrue(wait_until(taken_in))
        code, out, err = run("consume", "--dir", self.up.dir, "--cluster", "far", "--stream", "s",
                             "--until-idle", "3")
        self.assertEqual(code, 0, err)
        self.assertTrue(messages(0, 3000).endswith(out))
        self.assertGreater(len(out), FILE)


if __name__ == "__main__":
    main()
