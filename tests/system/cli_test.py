"""The commands as a user meets them: what they carry, and what they say when something is wrong."""

import fcntl
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from harness import BINARY, ONE_CELL, TIME_FACTOR, OneCellTest, SystemTest, Up, main, run


class Errors(SystemTest):
    """Bad input without any deployment."""

    def test_produce_without_a_deployment_says_how_to_start_one(self):
        with tempfile.TemporaryDirectory() as folder:
            self.check_fails(1, ["no deployment", folder, "tailcast up --dir"],
                             "produce", "--dir", folder, "--stream", "s")

    def test_a_bad_option_is_bad_usage(self):
        self.check_fails(2, ["--framing"], "produce", "--dir", "x", "--stream", "s", "--framing")
        code, _, err = run("consume", "--dir", "x", "--stream", "s", "--from", "yesterday")
        self.assertEqual(code, 2, err)

    def test_a_mistyped_command_or_option_gets_the_nearest_name(self):
        self.check_fails(2, ["no command 'consum'", "did you mean 'consume'"], "consum", "--dir", "x")
        self.check_fails(2, ["unknown option --dri", "did you mean '--dir'"], "up", "--dri", "x")
        self.check_fails(2, ["unknown option --colour"], "status", "--dir", "x", "--colour=red")
        self.check_fails(2, ["no command 'lst'", "'list'"], "stream", "lst")
        self.check_fails(2, ["--count", "above 0"], "consume", "--dir", "x", "--stream", "s", "--count", "0")
        for command, option, value, what in (
                ("consume", "--shard", "x", "the number of a shard: 0, 1"), ("produce", "--shard", "1.5", "the number of a shard"),
                ("tail", "--shard", "-1", "the number of a shard"), ("consume", "--shard", "10000", "the number of a shard"),
                ("consume", "--count", "1.5", "a whole number above 0"), ("produce", "--rate", "nan", "a number above 0"),
                ("consume", "--until-idle", "x", "a number above 0")):
            self.check_fails(2, [f"{option}: '{value}' is not {what}"],
                             command, "--dir", "x", "--stream", "s", option, value)
        self.check_fails(2, ["nowhere", "HOST:PORT"], "consume", "--cell", "nowhere", "--stream", "s")

    def test_every_command_has_help(self):
        for command in ([], ["up"], ["run"], ["stream"], ["stream", "create"], ["produce"], ["consume"],
                        ["status"], ["cache"], ["cache", "stat"], ["cache", "scan"], ["cache", "locate"],
                        ["cache", "dump"], ["copytree"], ["copytree", "plan"], ["demo"], ["key"],
                        ["load", "consume"]):
            code, out, err = run(*command, "--help")
            self.assertEqual((code, err), (0, ""), command)
            self.assertIn(b"Usage:", out)

    def test_a_malformed_topology_names_file_line_and_key(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "t.yaml")
            pathlib.Path(path).write_text("version: 1\nclusters:\n  - {name: a, colour: red}\n")
            self.check_fails(2, [path, ":3:", "colour"], "up", "--dir", folder + "/d", "--topology", path)
            pathlib.Path(path).write_text("version: 1\nclusters: [\n")
            self.check_fails(2, [path, "YAML"], "up", "--dir", folder + "/d", "--topology", path)
            for line, word, text in (
                    (3, "YAML", "version: 1\nclusters:\n\t- {name: a}\n"),
                    (2, "list", "version: 1\nclusters: a\n"),
                    (3, "twice", "version: 1\nclusters: [{name: a}]\nversion: 1\n"),
                    (2, "twice", "version: 1\nclusters: [{name: a}, {name: a}]\n"),
                    (3, "did you mean 'b1'", "version: 1\nclusters: [{name: a}, {name: b1}]\n"
                     "links: [{from: a, to: b2}]\n"),
                    (3, "rtt_ms", "version: 1\nclusters: [{name: a}, {name: b}]\n"
                     "links: [{from: a, to: b, rtt_ms: fast}]\n")):
                pathlib.Path(path).write_text(text)
                self.check_fails(2, [f"{path}:{line}:", word], "up", "--dir", folder + "/d", "--topology", path)

    def test_a_folder_that_cannot_be_made_is_named(self):
        self.check_fails(1, ["/proc/nowhere", "--dir"], "up", "--dir", "/proc/nowhere")

    def test_a_port_in_use_is_named(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            path = os.path.join(folder, "p.yaml")
            pathlib.Path(path).write_text(
                f"version: 1\ncell: c\nname: scheduler\nstore: posix:{folder}/s\ncell_key: none\nscheduler: {address}\n")
            self.check_fails(1, [address, "in use"], "run", "--role", "scheduler", "--config", path)
            topology = os.path.join(folder, "t.yaml")
            pathlib.Path(topology).write_text(
                f'version: 1\nclusters:\n  - {{name: here, scheduler: "{address}"}}\n')
            self.check_fails(1, ["'here'", address, "in use"], "up", "--dir", folder + "/d",
                             "--topology", topology)

    def test_a_bad_process_config_names_the_nearest_key(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "p.yaml")
            pathlib.Path(path).write_text("version: 1\ncel: c\n")
            self.check_fails(2, [path], "run", "--role", "cache", "--config", path)
            self.check_fails(2, ["rader", "reader"], "run", "--role", "rader", "--config", path)

    def test_a_name_that_is_no_folder_of_a_cell_is_refused_before_anything_starts(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "t.yaml")
            for name, rule in (("../out", "slashes"), ("A_B", "a-z 0-9 -")):
                pathlib.Path(path).write_text(f"version: 1\nclusters:\n  - {{name: {name}}}\n")
                self.check_fails(2, [name, rule], "up", "--dir", folder + "/d", "--topology", path)
            self.assertEqual(os.listdir(folder), ["t.yaml"])

    def test_a_name_with_no_room_for_a_further_role_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "p.yaml")
            pathlib.Path(path).write_text(f"version: 1\ncell: here\nname: {'n' * 60}\nstore: posix:{folder}/s\n"
                                          f"cell_key: none\nscheduler: 127.0.0.1:1\ncaches: [c]\ncache: {{run_dir: {folder}}}\n")
            self.check_fails(2, ["n-writer", "1 to 63"], "run", "--role", "reader,writer", "--config", path)

    def test_one_process_may_have_all_roles(self):
        with tempfile.TemporaryDirectory() as folder:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                address = f"127.0.0.1:{free.getsockname()[1]}"
            path = os.path.join(folder, "p.yaml")
            pathlib.Path(path).write_text(
                f"version: 1\ncell: here\nname: all\nstore: posix:{folder}/s\ncell_key: none\nscheduler: {address}\n"
                f"caches: [all-cache]\ncache: {{run_dir: {folder}}}\n")
            process = subprocess.Popen([BINARY, "run", "--role", "scheduler,cache,reader,writer",
                                        "--config", path], stderr=subprocess.PIPE, text=True)
            try:
                where = ["--cell", address, "--stream", "s"]
                end = time.monotonic() + 20 * TIME_FACTOR
                names = []
                while len(names) < 4 and time.monotonic() < end:
                    _, out, _ = run("status", "--cell", address, "--json")
                    names = [p["name"] for p in json.loads(out)["cells"][0]["processes"]]
                self.assertEqual(sorted(names), ["all", "all-cache", "all-reader", "all-writer"])
                code, _, err = run("stream", "create", *where)
                self.assertEqual(code, 0, err)
                code, _, err = run("produce", *where, stdin=b"a\nb\n")
                self.assertEqual(code, 0, err)
                code, out, err = run("consume", *where, "--count", "2")
                self.assertEqual((code, out), (0, b"a\nb\n"), err)
            finally:
                process.send_signal(signal.SIGTERM)
                _, err = process.communicate(timeout=30 * TIME_FACTOR)
            self.assertEqual(process.returncode, 0, err)
            self.assertNotIn("refused to register", err)


class OneCell(OneCellTest):
    def produce(self, where, payload, *options):
        code, _, err = run("produce", *where, "--profile", "low-latency", *options, stdin=payload)
        self.assertEqual(code, 0, err)

    def test_what_goes_in_comes_out(self):
        where = self.create("lines")
        payload = b"".join(b"line %d\n" % i for i in range(2000)) + b"no newline at the end"
        self.produce(where, payload)
        for fabric in ("shm", "tcp"):
            code, out, err = run("consume", *where, "--count", "2001", "--fabric", fabric)
            self.assertEqual((code, out), (0, payload), err)

    def test_length_framing_carries_any_bytes(self):
        where = self.create("length")
        messages = [b"", b"\n", bytes(range(256)) * 500, b"x"]
        payload = b"".join(len(m).to_bytes(4, "big") + m for m in messages)
        self.produce(where, payload, "--framing", "length")
        code, out, err = run("consume", *where, "--framing", "length", "--count", "4")
        self.assertEqual((code, out), (0, payload), err)

    def test_a_position_resumes_behind_the_last_message(self):
        where = self.create("resume")
        self.produce(where, b"a\nb\nc\nd\n")
        code, out, err = run("consume", *where, "--count", "2", "--positions")
        self.assertEqual(out, b"a\nb\n")
        position = err.split()[-1]
        code, out, err = run("consume", *where, "--from", position, "--count", "2")
        self.assertEqual((code, out), (0, b"c\nd\n"), err)

    def positions(self, err):
        """By shard, of `--positions`."""
        return {int(p.split(".")[2]): p for p in err.split() if p.startswith("t1.")}

    def test_positions_lie_behind_what_was_written_and_nothing_more(self):
        where = self.create("places", "--shards", "2")
        lines = {shard: [b"%d %d\n" % (shard, i) for i in range(2048)] for shard in (0, 1)}
        for shard in (0, 1):
            self.produce(where, b"".join(lines[shard]), "--shard", str(shard))
        code, out, err = run("consume", *where, "--count", "10", "--positions")
        self.assertEqual(code, 0, err)
        for shard, position in self.positions(err).items():
            written = [line for line in out.splitlines(True) if line in lines[shard]]
            code, rest, err = run("consume", *where, "--shard", str(shard), "--from", position,
                                  "--count", str(2048 - len(written)))
            self.assertEqual((code, written + rest.splitlines(True)), (0, lines[shard]), err)

    def test_positions_do_not_skip_what_a_reader_that_left_did_not_read(self):
        where = self.create("left")
        lines = [b"%d\n" % i for i in range(50000)]
        self.produce(where, b"".join(lines))
        consume = subprocess.Popen([BINARY, "consume", *where, "--positions"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, bufsize=0)
        self.addCleanup(consume.kill)
        read = consume.stdout.read(4096)
        consume.stdout.close()
        err = consume.stderr.read().decode()
        self.assertEqual(consume.wait(timeout=30), 0, err)
        consume.stderr.close()
        code, out, err = run("consume", *where, "--from", self.positions(err)[0], "--count", "1")
        self.assertEqual((code, out), (0, lines[read.count(b"\n")]), err)

    def test_until_idle_ends_and_end_skips_what_was(self):
        where = self.create("idle")
        self.produce(where, b"old\n")
        code, out, err = run("consume", *where, "--until-idle", "0.5")
        self.assertEqual((code, out), (0, b"old\n"), err)
        code, out, err = run("consume", *where, "--from", "end", "--until-idle", "0.5")
        self.assertEqual((code, out), (0, b""), err)

    def test_a_second_run_goes_on_behind_the_first(self):
        where = self.create("again")
        self.produce(where, b"1\n2\n")
        self.produce(where, b"3\n")
        code, out, err = run("consume", *where, "--count", "3")
        self.assertEqual((code, out), (0, b"1\n2\n3\n"), err)

    def test_delete_wants_to_be_sure_and_then_tells_everybody(self):
        where = self.create("doomed")
        self.check_fails(2, ["'doomed'", "--yes"], "stream", "delete", *where)
        self.produce(where, b"one\n")
        consume = subprocess.Popen([BINARY, "consume", *where], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        produce = subprocess.Popen([BINARY, "produce", *where], stdin=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        for process in (consume, produce):
            self.addCleanup(process.kill)
        self.assertEqual(consume.stdout.readline(), b"one\n")
        produce.stdin.write(b"two\n")
        produce.stdin.flush()
        self.assertEqual(consume.stdout.readline(), b"two\n")
        files = self.files("doomed", "")
        self.assertEqual(len(files), 4)
        code, out, err = run("stream", "delete", *where, "--yes")
        self.assertEqual(code, 0, err)
        for process in (consume, produce):  # which nobody interrupts, or closes the input of
            self.assertEqual(process.wait(timeout=2 * TIME_FACTOR), 1)
            self.assertIn(b"stream 'doomed' was deleted", process.stderr.read())
            process.stderr.close()
        consume.stdout.close()
        produce.stdin.close()
        end = time.monotonic() + 30 * TIME_FACTOR
        while any(file.exists() for file in files) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual([str(file) for file in files if file.exists()], [])
        self.create("doomed")

    def test_an_unknown_stream_gets_the_nearest_name(self):
        self.create("prices")
        self.check_fails(1, ["price", "did you mean 'prices'"],
                         "produce", "--dir", self.up.dir, "--stream", "price")
        self.check_fails(1, ["did you mean 'prices'"],
                         "consume", "--dir", self.up.dir, "--stream", "prces", "--count", "1")

    def test_an_unknown_cluster_gets_the_nearest_name(self):
        self.check_fails(1, ["did you mean 'here'"],
                         "consume", "--dir", self.up.dir, "--cluster", "hree", "--stream", "s")

    def test_a_bad_stream_name_says_the_rule(self):
        self.check_fails(2, ["a-z"], "stream", "create", "--dir", self.up.dir, "--stream", "No Good")

    def test_a_message_over_the_limit_is_named_and_what_came_before_is_kept(self):
        where = self.create("limit")
        for end in (b"", b"\nnever\n"):
            err = self.check_fails(1, ["limit is 10", "--message-bytes-max", "Nothing from there on"],
                                   "produce", *where, "--message-bytes-max", "10",
                                   stdin=b"short\n" + b"x" * 50 + end)
            self.assertIn("1 message durable", err)
        code, out, _ = run("consume", *where, "--until-idle", "0.5")
        self.assertEqual((code, out), (0, b"short\nshort\n"))

    def test_a_second_producer_on_a_live_shard_is_refused_unless_it_takes_over(self):
        where = self.create("fenced")
        first = subprocess.Popen([BINARY, "produce", *where, "--profile", "low-latency"],
                                 stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE)
        self.addCleanup(first.kill)
        first.stdin.write(b"first\n")
        first.stdin.flush()
        code, out, _ = run("consume", *where, "--count", "1")
        self.assertEqual(out, b"first\n")
        self.check_fails(1, ["fenced", "--takeover"], "produce", *where, stdin=b"second\n")
        self.produce(where, b"third\n", "--takeover")
        first.stdin.write(b"lost\n")
        first.stdin.close()
        self.assertEqual(first.wait(timeout=90 * TIME_FACTOR), 1, "the fenced producer must fail")
        first.stderr.close()
        code, out, _ = run("consume", *where, "--until-idle", "0.7")
        self.assertEqual((code, out), (0, b"first\nthird\n"))

    def test_status_is_short_and_says_which_stream_it_knows_not(self):
        self.check_fails(1, ["no stream 'nothing'"], "status", "--dir", self.up.dir, "--stream", "nothing")
        self.check_fails(1, ["no cluster 'hare'", "'here'"], "status", "--dir", self.up.dir, "--cluster", "hare")
        for i in range(20):
            self.create(f"many{i}")
        code, out, err = run("status", "--dir", self.up.dir)
        self.assertEqual(code, 0, err)
        lines = out.decode().splitlines()
        self.assertTrue(lines[1].startswith("here "), lines)
        self.assertLess(len(lines), 24, out)
        self.assertIn(b"idle streams (--all shows them)", out)
        self.assertIn(b"\nmany7 ", run("status", "--dir", self.up.dir, "--all")[1])

    def test_a_watched_status_goes_on_and_ends_with_its_reader(self):
        watch = subprocess.Popen([BINARY, "status", "--dir", self.up.dir, "--watch", "0.1", "--json"],
                                 stdout=subprocess.PIPE, text=True)
        for _ in range(3):
            self.assertEqual(json.loads(watch.stdout.readline())["cells"][0]["name"], "here")
        watch.stdout.close()
        self.assertEqual(watch.wait(timeout=30 * TIME_FACTOR), 0)

    def test_restarts_are_counted(self):
        pid = self.up.pids("here", "writer")["writer-1"]
        os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + 30 * TIME_FACTOR
        said = b""
        while b"process writer-1 was started again" not in said and time.monotonic() < end:
            said = run("status", "--dir", self.up.dir)[1]
        self.assertIn(b"here: process writer-1 was started again", said)
        [writer] = [p for p in self.up.status()["cells"][0]["processes"] if p["name"] == "writer-1"]
        self.assertEqual(writer["status"]["restarts"], 1)

    def test_status_shows_heads_memory_and_what_gives_no_sign_of_life(self):
        where = self.create("heads")
        self.produce(where, b"a\nbb\nccc\n")
        # A status that finds no head in time says so, instead of waiting for it.
        end = time.monotonic() + 30 * TIME_FACTOR
        out = b""
        row = re.compile(rb"(?m)^  0 +here +3 +9 B ")
        while not row.search(out) and time.monotonic() < end:
            code, out, err = run("status", "--dir", self.up.dir, "--cluster", "here", "--stream", "heads")
            self.assertEqual(code, 0, err)
        self.assertRegex(out, row)
        self.assertIn(b"over shm (the fastest that the server offers)", out)
        head = {"shards": [{}]}
        while "messages" not in head["shards"][0] and time.monotonic() < end:
            [cell] = self.up.status()["cells"]
            [head] = [s for s in cell["streams"] if s["stream"] == "heads"]
        self.assertEqual((head["shards"][0]["messages"], head["shards"][0]["bytes"]), (3, 9))
        for process in cell["processes"]:
            now = pathlib.Path(f"/proc/{process['pid']}/status").read_text()
            own = 1024 * int(re.search(r"RssAnon:\s+(\d+)", now).group(1))
            self.assertTrue(own / 2 < process["status"]["memory_bytes"] < 2 * own, (process["name"], own))
        pid = self.up.pids("here", "reader")["reader-1"]
        os.kill(pid, signal.SIGSTOP)
        try:
            end = time.monotonic() + 30
            state = "up"
            while state == "up" and time.monotonic() < end:
                processes = {p["name"]: p for p in self.up.status()["cells"][0]["processes"]}
                state = processes["reader-1"]["state"]
            self.assertIn(state, ("silent", "down"))
            self.assertEqual(processes["reader-2"]["state"], "up")
            self.assertRegex(run("status", "--dir", self.up.dir)[1], rb"(?m)^here: process reader-1 is (silent|down)")
        finally:
            os.kill(pid, signal.SIGCONT)

    def test_status_says_which_cache_replicas_are_whole_and_what_keeps_the_others(self):
        def caches():
            return self.up.status()["cells"][0]["metadata_cache"]

        def until(what):
            end = time.monotonic() + 30 * TIME_FACTOR
            ring = caches()
            while not what(ring) and time.monotonic() < end:
                time.sleep(0.05)
                ring = caches()
            self.assertTrue(what(ring), ring)

        def all_whole(ring):
            return all(replica["whole"] for replica in ring["replicas"])

        until(all_whole)
        count = len(caches()["replicas"])
        status = ("status", "--dir", self.up.dir, "--cluster", "here")
        code, out, err = run(*status)
        self.assertEqual(code, 0, err)
        self.assertIn(b"%d of %d replicas whole\n" % (count, count), out)
        epoch = caches()["epoch"]
        # One begins anew: it rests, copies, and is whole again; nothing is lost.
        os.kill(self.up.pids("here", "cache")["cache-1"], signal.SIGKILL)
        expected = b"%d of %d replicas whole\n    cache-1 " % (count - 1, count)
        end = time.monotonic() + 30 * TIME_FACTOR
        while expected not in out and time.monotonic() < end:
            code, out, err = run(*status)
        self.assertIn(expected, out)
        until(all_whole)
        self.assertEqual(caches()["epoch"], epoch)

    def test_the_ring_changes_while_it_is_used_and_replicas_restart_in_turn(self):
        def cache(*args, expect=0):
            code, out, err = run("cache", args[0], "--dir", self.up.dir, *args[1:])
            self.assertEqual(code, expect, err)
            return out, err

        where = self.create("ring")
        cache("wait")
        epoch = self.up.status()["cells"][0]["metadata_cache"]["epoch"]
        out, _ = cache("ring")
        self.assertIn(b"cache-1, cache-2, cache-3, cache-4\n  settled\n", out)
        self.produce(where, b"one\n")
        out, _ = cache("reshard", "cache-1", "cache-2", "cache-4")
        self.assertIn(b"cache-1, cache-2, cache-4\n  settled\n  in no ring: cache-3\n", out)
        self.produce(where, b"two\n")
        # A replica that does not answer: nothing happens to the ring that is read.
        self.check_fails(1, ["no cache process 'cache-9'", "start it"], "cache", "reshard", "--dir",
                         self.up.dir, "cache-1", "cache-2", "cache-9")
        pid = self.up.pids("here", "cache")["cache-3"]
        os.kill(pid, signal.SIGSTOP)
        try:
            cache("reshard", "cache-1", "cache-2", "cache-3", "--no-wait")
            self.check_fails(1, ["is changing to cache-1, cache-2, cache-3"], "cache", "reshard",
                             "--dir", self.up.dir, "cache-1", "--force")
            self.check_fails(1, ["cache-3 is"], "cache", "wait", "--dir", self.up.dir, "--timeout",
                             "0.5")
            self.produce(where, b"three\n")
            cache("reshard", "--cancel")
        finally:
            os.kill(pid, signal.SIGCONT)
        cache("reshard", "cache-1", "cache-2", "cache-3", "cache-4")
        self.check_fails(2, ["fewer than three"], "cache", "reshard", "--dir", self.up.dir, "cache-1")
        out, _ = cache("restart", "cache-1", "cache-3")
        self.assertRegex(out, rb"cache-1: whole again after .* s\ncache-3: whole again after")
        self.produce(where, b"four\n")
        code, out, err = run("consume", *where, "--from", "beginning", "--count", "4")
        self.assertEqual((code, out), (0, b"one\ntwo\nthree\nfour\n"), err)
        caches = self.up.status()["cells"][0]["metadata_cache"]
        self.assertEqual(caches["epoch"], epoch, "nothing was lost")
        self.assertEqual([r["whole"] for r in caches["replicas"]], [True] * 4)
        # Mistakes.
        with open(os.path.join(self.up.dir, "cache-restart.lock"), "w", encoding="utf-8") as another:
            fcntl.flock(another, fcntl.LOCK_EX)
            self.check_fails(1, ["another", "under way"], "cache", "restart", "--dir", self.up.dir)
        self.check_fails(2, ["name the replicas"],
                         "cache", "reshard", "--dir", self.up.dir)
        self.check_fails(2, ["'cache-1' twice"], "cache", "reshard", "--dir", self.up.dir, "cache-1",
                         "cache-2", "cache-1")
        self.check_fails(1, ["not changing"], "cache", "reshard", "--dir", self.up.dir, "--cancel")
        self.check_fails(2, ["--dir"], "cache", "restart", "--cell",
                         self.up.status()["cells"][0]["scheduler"])

    def files(self, stream, end):
        """The stream's primary files."""
        store = pathlib.Path(self.up.dir, "here", "store", "streams", stream)
        return sorted(p for p in store.glob("*/*/*" + end) if not p.name.startswith("."))

    def consume_from_disk(self, where, *options):
        """Without what the caches have: their memory is gone with them."""
        for pid in self.up.pids("here", "cache").values():
            os.kill(pid, signal.SIGKILL)
        return run("consume", *where, *options)

    def test_a_corrupt_record_ends_the_consumer_before_it(self):
        where = self.create("corrupt")
        self.produce(where, b"".join(b"%d\n" % i for i in range(1000)))
        [index] = self.files("corrupt", ".index")
        with open(index, "r+b") as file:
            file.seek(4096 + 500 * 32 + 8)
            file.write(b"\xff\xff")
        code, out, err = self.consume_from_disk(where, "--until-idle", "2")
        self.assertEqual(out, b"".join(b"%d\n" % i for i in range(500)), err)
        self.assertEqual(code, 1, err)
        for word in (index.name, "check sum", "byte 16000", "message 500"):
            self.assertIn(word, err)

    def test_a_lost_data_file_is_no_end(self):
        where = self.create("lost")
        for word in (b"one", b"two"):
            self.produce(where, word + b"\n")
        first, _ = self.files("lost", ".data")
        first.unlink()
        code, out, err = self.consume_from_disk(where, "--until-idle", "1")
        self.assertEqual((code, out), (1, b""), err)
        for word in (first.name, "4", "only 0 are in this cell"):
            self.assertIn(word, err)

    def test_a_truncated_index_ends_the_consumer_before_the_cut(self):
        where = self.create("cut")
        self.produce(where, b"".join(b"%d\n" % i for i in range(1000)))
        [index] = self.files("cut", ".index")
        os.truncate(index, 4096 + 500 * 32 + 16)
        code, out, err = self.consume_from_disk(where, "--until-idle", "2")
        self.assertTrue(b"".join(b"%d\n" % i for i in range(500)).startswith(out), err)
        self.assertEqual(code, 1, err)
        for word in (index.name, "missing", "cut by another program"):
            self.assertIn(word, err)

    def test_a_reader_that_stops_early_is_no_error(self):
        where = self.create("head")
        self.produce(where, b"line\n" * 100000)
        consume = subprocess.Popen([BINARY, "consume", *where, "--count", "100000"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(consume.stdout.readline(), b"line\n")
        consume.stdout.close()
        self.assertEqual((consume.wait(timeout=30), consume.stderr.read()), (0, b""))
        consume.stderr.close()

    def test_a_signal_ends_a_consumer_whose_reader_stands_still(self):
        where = self.create("stalled")
        self.produce(where, b"line\n" * 100000)
        for ending in (signal.SIGINT, signal.SIGTERM):
            consume = subprocess.Popen([BINARY, "consume", *where], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE)
            self.addCleanup(consume.kill)
            self.assertEqual(consume.stdout.read(5), b"line\n")
            for _ in range(30):  # a signal in the moment before it waits is seen with the next one
                consume.send_signal(ending)
                try:
                    consume.wait(timeout=1)
                    break
                except subprocess.TimeoutExpired:
                    pass
            self.assertEqual((consume.poll(), consume.stderr.read() if consume.poll() is not None else b""),
                             (0, b""))
            consume.stdout.close()
            consume.stderr.close()

    def test_a_reader_that_went_before_the_end_is_no_error(self):
        where = self.create("gone")
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run([BINARY, "load", "produce", *where, "--seconds", "0.1"], stdout=write,
                              stderr=subprocess.PIPE, timeout=60)
        os.close(write)
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_closed_and_full_standard_streams_fail(self):
        where = self.create("closed")
        shell = lambda text: subprocess.run(["sh", "-c", text, "sh", BINARY, *where], capture_output=True,
                                            text=True, timeout=60)
        done = shell('"$@" <&-'.replace('"$@"', 'b=$1; shift; "$b" produce "$@"'))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("standard input", done.stderr)
        self.produce(where, b"x\n")
        for redirect in (">&-", ">/dev/full"):
            done = shell('b=$1; shift; "$b" consume "$@" --count 1 ' + redirect)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("standard output", done.stderr)
        done = shell('"$1" status "$2" "$3" >/dev/full')
        self.assertEqual(done.returncode, 1, done.stderr)

    def test_a_second_up_in_the_same_folder_is_refused(self):
        self.check_fails(1, [self.up.dir, "another"], "up", "--dir", self.up.dir)


class DeletedStreams(SystemTest):
    def test_a_stream_of_the_topology_that_was_deleted_stays_deleted_when_up_is_started_again(self):
        up = Up(ONE_CELL + "streams:\n  - {name: kept, source: here}\n  - {name: gone, source: here}\n",
                "--caches", "1", "--readers", "1", "--writers", "1")
        self.addCleanup(up.close)
        code, _, err = run("stream", "delete", "--dir", up.dir, "--stream", "gone", "--yes")
        self.assertEqual(code, 0, err)
        up.stop()
        up.start()
        self.assertRegex(run("stream", "list", "--dir", up.dir)[1].decode(), r"^kept +1 shard\b[^\n]*\n$")


class Tables(SystemTest):
    def test_links_of_tables_stay_in_a_table_of_the_deployment(self):
        with tempfile.TemporaryDirectory() as folder:
            table = pathlib.Path(folder, "links.csv")
            table.write_text("from,to,usd_per_gb,rtt_ms\na,b,0.02,0\nb,a,0.02,0\na,c,0.03,0\nb,c,0.01,0\nc,b,0.5,0\n")
            up = Up(f"version: 1\nclusters: [{{name: a}}, {{name: b}}, {{name: c}}]\ntables: [{table}]\n"
                    "streams: [{name: s, source: a}]\n", "--caches", "1", "--readers", "1", "--writers", "1")
            self.addCleanup(up.close)
        kept = pathlib.Path(up.dir, "links.csv")  # the user's is gone
        text = pathlib.Path(up.dir, "b", "config", "topology.yaml").read_text()
        self.assertIn(str(kept), text)
        self.assertNotIn("usd_per_gb", text)
        replan = ["stream", "reroute", "--dir", up.dir, "--stream", "s", "--fail", "a-b", "--dry-run"]
        code, out, err = run(*replan)
        self.assertEqual(code, 0, err)
        self.assertRegex(out, rb"add-edge +a -> c")
        kept.write_text(kept.read_text().replace("0.5", "0.4"))
        code, _, err = run(*replan)
        self.assertNotEqual(code, 0)
        self.assertIn(f"{kept} is another table than the one that the cells were started with", err)


class Restarts(SystemTest):
    def test_a_deployment_comes_back_where_it_was_and_its_users_go_on(self):
        up = Up(None, "--profile", "low-latency")
        try:
            before = {cell["name"]: cell["scheduler"] for cell in up.status()["cells"]}
            self.assertEqual(len(before), 3)
            where = ["--dir", up.dir, "--stream", "s"]
            code, _, err = run("stream", "create", *where, "--cluster", "us-central")
            self.assertEqual(code, 0, err)
            consume = subprocess.Popen([BINARY, "consume", *where, "--cluster", "asia-east"],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            produce = subprocess.Popen([BINARY, "produce", *where, "--profile", "low-latency"],
                                       stdin=subprocess.PIPE, stderr=subprocess.PIPE)
            for process in (consume, produce):
                self.addCleanup(process.kill)

            def publish(line):
                produce.stdin.write(line)
                produce.stdin.flush()
                self.assertEqual(consume.stdout.readline(), line)

            publish(b"before\n")
            self.assertEqual(up.stop(), 0)
            up.start()
            self.assertEqual({cell["name"]: cell["scheduler"] for cell in up.status()["cells"]}, before)
            publish(b"after\n")
            produce.stdin.close()
            self.assertEqual(produce.wait(timeout=60 * TIME_FACTOR), 0, produce.stderr.read())
            produce.stderr.close()
            consume.send_signal(signal.SIGINT)
            self.assertEqual(consume.wait(timeout=60 * TIME_FACTOR), 0)
            consume.stdout.close()
            consume.stderr.close()
        finally:
            self.assertEqual(up.close(), 0)

    def test_what_dies_is_back_within_a_second_and_up_says_so(self):
        up = Up(ONE_CELL)
        try:
            for role in ("reader", "writer", "cache", "scheduler"):
                name, pid = sorted(up.pids("here", role).items())[0]
                os.kill(pid, signal.SIGKILL)
                start = time.monotonic()
                up.wait_for(f"here/{name} was started again")
                self.assertLess(time.monotonic() - start, 1.0 * TIME_FACTOR)
        finally:
            self.assertEqual(up.close(), 0)


if __name__ == "__main__":
    main()
