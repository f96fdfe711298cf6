"""Who produces and consumes, as `tailcast status` shows it."""

import json
import os
import signal
import subprocess
import time

from harness import BINARY, TIME_FACTOR, SystemTest, Up, main, run

TWO_CELLS = "version: 1\nclusters: [{name: here}, {name: there}]\n"


class Users(SystemTest):
    @classmethod
    def setUpClass(cls):
        cls.up = Up(TWO_CELLS, "--caches", "1", "--readers", "1", "--writers", "1")
        cls.addClassCleanup(cls.up.close)
        for name in ("s", "other"):
            code, _, err = run("stream", "create", "--dir", cls.up.dir, "--cluster", "here", "--stream", name)
            assert code == 0, err

    def start(self, *args):
        process = subprocess.Popen([BINARY, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL)

        def end():
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()

        self.addCleanup(end)
        return process

    def users(self, cell, *options):
        code, out, err = run("status", "--dir", self.up.dir, "--json", *options)
        self.assertEqual(code, 0, err)
        return next(c for c in json.loads(out)["cells"] if c["name"] == cell)["users"]

    def await_users(self, cell, condition):
        end = time.monotonic() + 30 * TIME_FACTOR
        while not condition(users := self.users(cell)):
            self.assertLess(time.monotonic(), end, users)
            time.sleep(0.1)
        return users

    def test_who_produces_and_who_opted_in_is_shown(self):
        producer = self.start("produce", "--dir", self.up.dir, "--stream", "s")
        consumer = self.start("consume", "--dir", self.up.dir, "--cluster", "there", "--stream", "s", "--report-as",
                              "Preise für Köln")
        silent = self.start("consume", "--dir", self.up.dir, "--cluster", "there", "--stream", "s")
        producer.stdin.write(b"one\ntwo\n")
        producer.stdin.flush()
        for user in (consumer, silent):
            self.assertEqual([user.stdout.readline() for _ in range(2)], [b"one\n", b"two\n"])
        # The second report of each is of what it has done.
        [one] = self.await_users("here", lambda users: users and users[0]["messages"] == 2)
        self.assertEqual((one["kind"], one["stream"], one["name"], one["pid"], one["shards"], one["state"],
                          one["bytes"], one["behind_bytes"]),
                         ("producer", "s", "", producer.pid, 1, "producing", 8, 0))
        [one] = self.await_users("there", lambda users: users and users[0]["messages"] == 2)
        self.assertEqual((one["kind"], one["stream"], one["name"], one["pid"], one["shards"], one["bytes"],
                          one["behind_bytes"]),
                         ("consumer", "s", "Preise für Köln", consumer.pid, 1, 8, 0))
        self.assertEqual(one["host"], os.uname().nodename)
        self.assertIn(one["state"], ("tailing", "quiet"))
        self.assertLess(one["heard_ms"], 30_000)
        self.assertEqual(self.users("there", "--stream", "other"), [])

        code, out, err = run("status", "--dir", self.up.dir, "--stream", "s")
        self.assertEqual(code, 0, err)
        text = out.decode()
        self.assertRegex(text, rf"(?m)^Preise für Köln +consumer +there +\S+/{consumer.pid} .* nothing +\S+ m?s ago$")
        self.assertRegex(text, rf"(?m)^- +producer +here +\S+/{producer.pid} +producing +2 ")
        self.assertNotIn(f"/{silent.pid}", text)
        self.assertIn("1 producer and 1 consumer that report", run("status", "--dir", self.up.dir)[1].decode())
        self.assertRegex(run("status", "--dir", self.up.dir, "--all")[1].decode(),
                         r"(?m)^Preise für Köln +consumer +s +there ")
        metrics = {(m["name"], m["labels"].get("kind")): m["value"]
                   for cell in self.up.status()["cells"] if cell["name"] == "there"
                   for p in cell["processes"] if p["role"] == "scheduler" for m in p["status"]["metrics"]}
        self.assertEqual((metrics["tailcast_users", "consumer"], metrics["tailcast_users", "producer"]), (1, 0))

        for user in (consumer, silent):
            user.send_signal(signal.SIGKILL)
        producer.stdin.close()
        self.assertEqual(producer.wait(timeout=30 * TIME_FACTOR), 0)
        self.assertEqual(self.users("here"), [], "it has said good-bye")
        self.await_users("there", lambda users: not users)

    def test_a_name_that_is_none_is_refused(self):
        for name, why in (("", "empty"), ("x" * 101, "101 bytes; the limit is 100"), (b"\xff\xfe", "not UTF-8"),
                          ("two\nlines", "control characters")):
            self.check_fails(2, ["--report-as", why], "consume", "--dir", self.up.dir, "--cluster", "here", "--stream",
                             "s", "--report-as", name)

    def test_who_produced_a_deleted_stream_is_not_shown(self):
        code, _, err = run("stream", "create", "--dir", self.up.dir, "--cluster", "here", "--stream", "gone")
        self.assertEqual(code, 0, err)
        producer = self.start("produce", "--dir", self.up.dir, "--stream", "gone")
        producer.stdin.write(b"one\n")
        producer.stdin.flush()

        def of_it(users):
            return [user for user in users if user["stream"] == "gone"]

        self.await_users("here", of_it)
        code, _, err = run("stream", "delete", "--dir", self.up.dir, "--stream", "gone", "--yes")
        self.assertEqual(code, 0, err)
        begun = time.monotonic()
        self.await_users("here", lambda users: not of_it(users))
        self.assertLess(time.monotonic() - begun, 8 * TIME_FACTOR, "not only because it was not heard for long")


if __name__ == "__main__":
    main()
