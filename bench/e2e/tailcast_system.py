"""Tailcast as a system of the end-to-end benchmark: a deployment of one cell."""

import json
import os
import pathlib
import signal
import subprocess

from measure import Failed, end, spawn

TOPOLOGY = """version: 1
clusters:
  - {name: cell}
"""


class Tailcast:
    name = "tailcast"

    def __init__(self, binary, folder, durability):
        self.binary, self.durability = binary, durability
        topology = os.path.join(folder, "one-cell.yaml")
        pathlib.Path(topology).write_text(TOPOLOGY)
        self.dir = os.path.join(folder, "deployment")
        self.log = open(os.path.join(folder, "up.log"), "w+")
        self.process = spawn(
            [binary, "up", "--dir", self.dir, "--topology", topology, "--profile", "low-latency",
             "--durability", durability, "--data-cache-bytes", "512MB"],
            stdout=subprocess.PIPE, stderr=self.log)
        for line in self.process.stdout:
            if line.strip() == "ready":
                return
        self.log.seek(0)
        raise Failed(f"the deployment did not start:\n{self.log.read()}")

    def run(self, *arguments):
        return subprocess.run([self.binary, *arguments], check=True, text=True,
                              stdout=subprocess.PIPE).stdout

    def server_pids(self):
        status = json.loads(self.run("status", "--dir", self.dir, "--json"))
        return [p["pid"] for c in status["cells"] for p in c["processes"] if p["role"] == "cache"]

    def begin(self, stream):
        self.run("stream", "create", "--dir", self.dir, "--stream", stream)

    def end(self, stream):
        self.run("stream", "delete", "--yes", "--dir", self.dir, "--stream", stream)

    def produce(self, stream, row):
        rate = row["asked_mb_per_s"]
        roll = 16 << 20 if rate == 4.0 else 64 << 20
        return [self.binary, "load", "produce", "--dir", self.dir, "--stream", stream,
                "--mb-per-s", 0 if rate == "max" else rate, "--seconds", row["seconds"] + row["warmup"],
                "--roll-bytes", roll]

    def consume(self, stream, row):
        threads = row["consumers"] if row["mode"] == "threads" else 1
        return [self.binary, "load", "consume", "--dir", self.dir, "--stream", stream,
                "--fabric", row["via"], "--threads", threads, "--warmup", row["warmup"],
                "--until-idle", row["idle"], "--from", "beginning"]

    def stop(self):
        end(self.process, signal.SIGINT)
