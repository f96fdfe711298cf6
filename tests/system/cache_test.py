"""`tailcast cache stat | scan | locate | dump` against a cell of real processes."""

import json
import os
import re
import signal
import tempfile
import time
import unittest

from harness import ONE_CELL, TIME_FACTOR, SystemTest, Up, main, run


class BadInput(SystemTest):
    def test_each_bad_key_says_what_is_wrong_and_what_it_may_be(self):
        for key, words in (
                ("abc", ["'abc'", "32 hex digits", "STREAM/SHARD/SEQ"]),
                ("0123456789abcdef0123456789abcdeg", ["32 hex digits"]),
                ("s/0", ["STREAM/SHARD/SEQ/CHUNK"]),
                ("s/0/1/2/3", ["STREAM/SHARD/SEQ/CHUNK"]),
                ("s!/0/1", ["'s!/0/1'", "a-z"]),
                ("s/x/1", ["shard 'x'", "0 to 9999"]),
                ("s/0/0", ["file '0'", "1, 2, 3"]),
                ("s/0/1/-1", ["'-1' is no chunk", "index:0", "lock:primary"]),
                ("s/0/1/lock:x", ["'lock:x'"])):
            for command in ("locate", "dump"):
                self.check_fails(2, ["KEY", *words], "cache", command, "--dir", "x", key)

    def test_bad_options_are_bad_usage(self):
        self.check_fails(2, ["a command is missing"], "cache")
        self.check_fails(2, ["no command 'lcate'", "'locate'"], "cache", "lcate")
        self.check_fails(2, ["--instance", "data"], "cache", "stat", "--dir", "x", "--instance", "x")
        self.check_fails(2, ["--format", "json"], "cache", "stat", "--dir", "x", "--format", "xml")
        self.check_fails(2, ["KEY"], "cache", "locate", "--dir", "x")
        self.check_fails(2, ["--shard", "--stream"], "cache", "scan", "--dir", "x", "--shard", "0")
        self.check_fails(2, ["--seq", "--shard"], "cache", "scan", "--dir", "x", "--stream", "s", "--seq", "1")
        self.check_fails(2, ["--instance data", "metadata cache"],
                         "cache", "locate", "--dir", "x", "--instance", "data", "s/0/1")
        with tempfile.TemporaryDirectory() as folder:
            self.check_fails(1, ["no deployment", folder], "cache", "stat", "--dir", folder)


class Caches(SystemTest):
    @classmethod
    def setUpClass(cls):
        cls.up = Up(ONE_CELL)
        for stream in ("flights", "other"):
            code, _, err = run("stream", "create", "--dir", cls.up.dir, "--stream", stream, "--shards", "2")
            assert code == 0, err
        cls.payload = b"".join(b"line %d\n" % i for i in range(3000))
        code, _, err = run("produce", "--dir", cls.up.dir, "--stream", "flights", "--shard", "1", stdin=cls.payload)
        assert code == 0, err

    @classmethod
    def tearDownClass(cls):
        assert cls.up.close() == 0

    def ok(self, *args):
        code, out, err = run("cache", *args, "--dir", self.up.dir)
        self.assertEqual(code, 0, err)
        return out

    def json(self, *args, code=0):
        got, out, err = run("cache", *args, "--dir", self.up.dir, "--format", "json")
        self.assertEqual(got, code, err)
        return json.loads(out)

    def until_whole(self):
        end = time.monotonic() + 30 * TIME_FACTOR
        while time.monotonic() < end:
            caches = self.json("stat")["caches"]
            if all(r["state"] == "whole" for c in caches for r in c["replicas"]):
                return caches
            time.sleep(0.1)
        self.fail(caches)

    def test_stat_shows_each_replica_of_both_caches_in_80_columns(self):
        caches = self.until_whole()
        self.assertEqual([c["cache"] for c in caches], ["data", "metadata"])
        for cache in caches:
            self.assertEqual([r["name"] for r in cache["replicas"]], [f"cache-{i}" for i in range(1, 5)])
            self.assertEqual(cache["whole_replicas"], 4)
            for replica in cache["replicas"]:
                self.assertEqual(replica["remarks"], [])
                self.assertEqual(replica["configuration_id"], cache["configuration_id"])
                self.assertEqual(replica.get("epoch"), cache.get("epoch"))
                self.assertRegex(replica["incarnation"], "^[0-9a-f]{16}$")
                values = replica["values"]
                self.assertGreater(values["memory_bytes"], values["memory_used_bytes"])
        self.assertGreater(sum(r["values"]["live"] for r in caches[1]["replicas"]), 0)
        text = self.ok("stat").decode()
        self.assertEqual([line for line in text.splitlines() if len(line) > 80], [])
        self.assertEqual(len(re.findall(r"(?m)^cache-\d +[0-9a-f]{4} whole ", text)), 8)
        self.assertRegex(text, r"(?m)^data cache: configuration \d+; 4 of 4 replicas whole$")
        self.assertRegex(text, r"metadata cache: configuration \d+, epoch 1; 4 of 4 replicas whole\n")
        only = self.ok("stat", "--instance", "data").decode()
        self.assertNotIn("metadata cache", only)

    def test_scan_finds_the_names_of_keys_and_what_records_say(self):
        found = {c["cache"]: c for c in self.json("scan", "--limit", "0", "--stream", "flights")["caches"]}
        chunks = {k["name"]: k for k in found["data"]["keys"]}
        size = len(self.payload)
        for i in range(size // 4096 + 1):
            chunk = chunks[f"flights/1/1/{i}"]
            self.assertEqual(chunk["length"], min(4096, size - 4096 * i))
            self.assertEqual(chunk["rule"], "longer")
            self.assertTrue(0 < chunk["remaining_ms"] <= 60_000)
            self.assertEqual([(o["owner"], o["has"]) for o in chunk["owners"]], [(True, True)] * 3)
        self.assertIn("flights/1/1/index:0", chunks)
        [record] = found["metadata"]["keys"]
        self.assertEqual((record["name"], record["rule"]), ("flights/1/1", "lanes"))
        self.assertIn(f"file 1: cache {size}+96000, primary {size}+96000", record["contents"][0])
        text = self.ok("scan", "--limit", "1", "--stream", "flights").decode()
        self.assertIn("flights/1/1/0\n", text)
        self.assertIn("more; --limit 0 lists all", text)
        self.assertIn(f"sealed at", text)
        # Filters, one replica, and what is not there.
        self.assertEqual([c["keys_total"] for c in self.json("scan", "--stream", "other")["caches"]], [0, 0])
        self.assertEqual([c["keys_total"] for c in self.json("scan", "--stream", "flights", "--shard", "1",
                                                             "--seq", "2", "--instance", "data")["caches"]], [0])
        one = self.json("scan", "--replica", "cache-2", "--instance", "data", "--limit", "0")["caches"][0]
        self.assertTrue(0 < one["keys_total"] < found["data"]["keys_total"])
        for key in one["keys"]:
            self.assertIn("name", key)
            self.assertIn({"name": "cache-2", "owner": True, "has": True}, key["owners"])
        self.check_fails(1, ["'cache-9'", "did you mean"], "cache", "scan", "--dir", self.up.dir, "--replica",
                         "cache-9")
        self.check_fails(1, ["'flight'", "did you mean 'flights'"], "cache", "scan", "--dir", self.up.dir,
                         "--stream", "flight")
        self.check_fails(2, ["2 shards"], "cache", "scan", "--dir", self.up.dir, "--stream", "flights",
                         "--shard", "2")

    def test_locate_shows_the_owners_of_a_chunk_and_of_its_record(self):
        self.until_whole()
        record, chunk = self.json("locate", "flights/1/1/0")
        self.assertEqual((record["cache"], record["name"]), ("metadata", "flights/1/1"))
        self.assertEqual((chunk["cache"], chunk["name"]), ("data", "flights/1/1/0"))
        for what in (record, chunk):
            self.assertTrue(what["complete"] and what["alike"] and not what["contradicts"], what)
            self.assertEqual(len(what["owners"]), 3)
            self.assertEqual(len({o["crc32c"] for o in what["owners"]}), 1)
        self.assertEqual({o["length"] for o in chunk["owners"]}, {4096})
        text = self.ok("locate", "flights/1/1/0").decode()
        self.assertIn("3 of 3 owners count, all alike", text)
        self.assertEqual([line for line in text.splitlines() if len(line) > 80], [])
        # The same by its key, of which it is not known whose it is.
        both = self.json("locate", chunk["key"])
        self.assertEqual([(b["cache"], b["found"]) for b in both], [("data", True), ("metadata", False)])
        self.assertEqual(both[0]["owners"][0]["name"], chunk["owners"][0]["name"])
        self.check_fails(1, ["did you mean 'flights'"], "cache", "locate", "--dir", self.up.dir, "flihgts/1/1")
        self.check_fails(2, ["2 shards"], "cache", "locate", "--dir", self.up.dir, "flights/7/1")

    def test_dump_writes_what_a_reader_would_get(self):
        self.until_whole()
        got = b""
        for i in range(len(self.payload) // 4096 + 1):
            code, out, err = run("cache", "dump", "--dir", self.up.dir, f"flights/1/1/{i}")
            self.assertEqual(code, 0, err)
            self.assertIn(f"tailcast: data flights/1/1/{i}: {len(out)} bytes, crc32c ", err)
            self.assertEqual(err.count("\n"), 1)
            got += out
        self.assertEqual(got, self.payload)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "record")
            code, out, err = run("cache", "dump", "--dir", self.up.dir, "flights/1/1", "--out", path)
            self.assertEqual((code, out), (0, b""), err)
            self.assertEqual(os.path.getsize(path) % 128, 0)
            self.check_fails(1, ["--out", folder], "cache", "dump", "--dir", self.up.dir, "flights/1/1",
                             "--out", folder + "/no/such")
        self.check_fails(1, ["data flights/1/1/9999: absent", "Complete", "3 of 3"],
                         "cache", "dump", "--dir", self.up.dir, "flights/1/1/9999")

    def test_what_can_not_be_seen_is_said(self):
        self.until_whole()
        owners = [o["name"] for o in self.json("locate", "flights/1/1")[0]["owners"]]
        pids = self.up.pids("here", "cache")
        for name in owners[:2]:
            os.kill(pids[name], signal.SIGSTOP)
        try:
            [record] = self.json("locate", "flights/1/1")
            self.assertFalse(record["complete"])
            self.assertTrue(record["found"])
            self.assertEqual({o["state"] for o in record["owners"][:2]} - {"silent", "down"}, set())
            _, out, _ = run("cache", "locate", "--dir", self.up.dir, "flights/1/1")
            self.assertIn(b"PARTIAL: 1 of 3 owners counts, and 2 are needed", out)
            code, out, err = run("cache", "dump", "--dir", self.up.dir, "flights/1/1")
            self.assertEqual(code, 0, err)
            self.assertIn("PARTIAL", err)
            os.kill(pids[owners[2]], signal.SIGSTOP)
            self.check_fails(1, ["absent", "PARTIAL: 0 of 3", owners[2] + " is "],
                             "cache", "dump", "--dir", self.up.dir, "flights/1/1")
            code, out, _ = run("cache", "stat", "--dir", self.up.dir)
            self.assertEqual(code, 0)
            self.assertRegex(out.decode(), rf"(?m)^{owners[0]} +\S+ +(silent|down) +- ")
            self.assertRegex(out.decode(), rf"(?m)^  {owners[0]}: (does not answer at|has not registered)")
            code, out, _ = run("cache", "scan", "--dir", self.up.dir, "--instance", "metadata")
            self.assertEqual(code, 1)
            self.assertIn(f"PARTIAL: {owners[0]}: ".encode(), out)
        finally:
            for name in owners:
                os.kill(pids[name], signal.SIGCONT)


if __name__ == "__main__":
    main()
