"""A cell that is no destination of a stream any more, and is one again: `tailcast stream reroute --without, --with`."""

from harness import SystemTest, Up, main, run, wait_until

CELLS = """version: 1
clusters:
  - {name: source}
  - {name: middle}
  - {name: leaver}
streams:
  - {name: s, source: source}
"""


class Leave(SystemTest):
    def setUp(self):
        self.up = Up(CELLS, "--profile", "low-latency", "--caches", "1", "--readers", "1", "--writers", "1")
        self.addCleanup(self.up.close)

    def tailcast(self, *args, stdin=b""):
        code, out, err = run(*args, "--dir", self.up.dir, stdin=stdin)
        self.assertEqual(code, 0, err)
        return out.decode()

    def reroute(self, *args):
        return self.tailcast("stream", "reroute", "--stream", "s", "--wait", "30", *args)

    def consume(self, cell):
        return self.tailcast("consume", "--cluster", cell, "--stream", "s", "--until-idle", "0.5")

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


if __name__ == "__main__":
    main()
