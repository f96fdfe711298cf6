"""A cell that is no destination of a stream any more, and is one again: `tailcast stream reroute --without, --with`. And
one whose scheduler does not answer."""

import os
import signal
import time

from harness import TIME_FACTOR, SystemTest, Up, main, run, wait_until

CELLS = """version: 1
clusters:
  - {name: source}
  - {name: middle}
  - {name: leaver}
streams:
  - {name: s, source: source}
"""


class ThreeCells(SystemTest):
    topology = CELLS

    def setUp(self):
        self.up = Up(self.topology, "--profile", "low-latency", "--caches", "1", "--readers", "1", "--writers", "1")
        self.addCleanup(self.up.close)

    def tailcast(self, *args, stdin=b""):
        code, out, err = run(*args, "--dir", self.up.dir, stdin=stdin)
        self.assertEqual(code, 0, err)
        return out.decode()

    def consume(self, cell):
        return self.tailcast("consume", "--cluster", cell, "--stream", "s", "--until-idle", "0.5")


class Leave(ThreeCells):
    def reroute(self, *args):
        return self.tailcast("stream", "reroute", "--stream", "s", "--wait", "30", *args)

    def test_a_cell_leaves_and_comes_back(self):
        self.tailcast("produce", "--stream", "s", stdin=b"one\n")
        for cell in ("middle", "leaver"):
            self.assertTrue(wait_until(lambda c=cell: self.consume(c) == "one\n"))
        self.assertRegex(self.reroute("--without", "leaver"), r"remove-edge +\S+ -> leaver(.*\n)*.*carried out")
        self.tailcast("produce", "--stream", "s", stdin=b"two\n")
        self.assertTrue(wait_until(lambda: self.consume("middle") == "one\ntwo\n"))
        self.assertEqual(self.consume("leaver"), "one\n", "it keeps for a while what it has, and gets no more")
        self.assertNotIn("leaver", self.tailcast("stream", "describe", "--cluster", "source", "--stream", "s"))

        self.check_fails(1, ["'leaver' is no destination of stream 's'"], "stream", "reroute", "--dir", self.up.dir,
                         "--stream", "s", "--without", "leaver")
        self.check_fails(1, ["'source' is the source already of stream 's'"], "stream", "reroute", "--dir", self.up.dir,
                         "--stream", "s", "--with", "source")
        self.check_fails(1, ["needs a destination"], "stream", "reroute", "--dir", self.up.dir,
                         "--stream", "s", "--without", "middle")
        self.reroute("--with", "leaver")
        self.assertTrue(wait_until(lambda: self.consume("leaver") == "one\ntwo\n"))


class DoesNotAnswer(ThreeCells):
    # No healthy cell is fed through the one that is silent.
    topology = CELLS.replace("source: source}", "source: source, tree: [{from: source, to: middle}, {from: source, to: leaver}]}")

    def test_a_cell_that_does_not_answer_holds_up_nobody_but_who_creates(self):
        """Its scheduler is stopped: it neither answers nor refuses."""
        self.tailcast("stream", "create", "--stream", "doomed", "--cluster", "source")
        self.tailcast("produce", "--stream", "s", stdin=b"one\n")
        for cell in ("middle", "leaver"):
            self.assertTrue(wait_until(lambda c=cell: self.consume(c) == "one\n"))
        pid = self.up.pids("leaver", "scheduler")["scheduler"]
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(os.kill, pid, signal.SIGCONT)

        def within(seconds, *args, stdin=b"", code=0):
            began = time.monotonic()
            got, out, err = run(*args, "--dir", self.up.dir, stdin=stdin)
            self.assertEqual(got, code, err)
            self.assertLess(time.monotonic() - began, seconds * TIME_FACTOR, f"{args}: {err}")
            return out.decode() + err

        within(5, "produce", "--stream", "s", stdin=b"two\n")
        self.assertTrue(wait_until(lambda: self.consume("middle") == "one\ntwo\n"))
        # A new tree for the healthy ones: the cell that is silent leaves it.
        within(10, "stream", "reroute", "--stream", "s", "--without", "leaver")
        within(5, "produce", "--stream", "s", stdin=b"three\n")
        self.assertTrue(wait_until(lambda: self.consume("middle") == "one\ntwo\nthree\n"))
        within(10, "stream", "delete", "--stream", "doomed", "--yes", "--cluster", "source")
        said = within(10, "stream", "create", "--stream", "new", "--cluster", "source", code=1)
        self.assertIn("leaver", said)

        os.kill(pid, signal.SIGCONT)
        self.assertTrue(wait_until(lambda: run("stream", "create", "--dir", self.up.dir, "--stream", "new", "--cluster", "source")[0] == 0))
        self.assertTrue(wait_until(lambda: "doomed" not in self.tailcast("stream", "list", "--cluster", "leaver")))


if __name__ == "__main__":
    main()
