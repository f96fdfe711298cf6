"""Kafka as a system of the end-to-end benchmark: one broker of this run, on this machine.

Its jars are fetched once, by their Maven coordinate, into the user's cache folder; mvn asks Maven
Central, unless its own settings name another place. --kafka FOLDER or TAILCAST_KAFKA=FOLDER: take
the jars that are there instead, such as libs/ of a release that was unpacked.
"""

import hashlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from measure import Failed, end, log, spawn

VERSION = "4.1.0"
COORDINATES = [("org.apache.kafka", "kafka_2.13", VERSION),
               ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3")]
# Of all jars: digest() of the folder.
SHA256 = "79213b016d587f3be246fa72c845051f641e672f8105a64c2c6afd7db1424b28"
START_SECONDS = 60
# One node that is broker and controller; nothing is copied. All else is as it comes, but for room in
# the sockets, and that files of deleted topics go at once.
PROPERTIES = """process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.segment.bytes=268435456
log.segment.delete.delay.ms=100
file.delete.delay.ms=100
socket.send.buffer.bytes=1048576
socket.receive.buffer.bytes=1048576
"""
LOGGING = """status = error
rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = STDOUT
appender.stdout.type = Console
appender.stdout.name = STDOUT
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = %d %p %c %m%n
"""
# As Kafka's own scripts have it.
JAVA_OPTIONS = ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
                "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
                "-Djava.awt.headless=true"]
HELP = "--kafka FOLDER (or TAILCAST_KAFKA=FOLDER) takes the jars of an unpacked Kafka instead"


def digest(folder):
    """SHA-256 over the names and SHA-256 of all jars."""
    total = hashlib.sha256()
    for jar in sorted(pathlib.Path(folder).glob("*.jar")):
        total.update(f"{jar.name} {hashlib.sha256(jar.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def pom():
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>" for group, artifact, version in COORDINATES)
    return ('<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>tailcast.bench</groupId><artifactId>kafka</artifactId><version>1</version>"
            f"<dependencies>{dependencies}</dependencies></project>")


def fetch(cache):
    """The folder with Kafka's jars below `cache`; they are fetched if they are not there."""
    folder = pathlib.Path(cache) / f"kafka-{VERSION}"
    if not folder.exists():
        if shutil.which("mvn") is None:
            raise Failed(f"Kafka is not in {folder}, and mvn, which fetches it, is missing: "
                         f"install maven; or {HELP}")
        folder.parent.mkdir(parents=True, exist_ok=True)
        log(f"fetching Kafka {VERSION} (45 MB) into {folder}")
        with tempfile.TemporaryDirectory(dir=folder.parent) as part:
            pathlib.Path(part, "pom.xml").write_text(pom())
            jars = pathlib.Path(part, "jars")
            done = subprocess.run(
                ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime",
                 f"-DoutputDirectory={jars}"],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                cwd=part)
            if done.returncode != 0 or not jars.exists():
                raise Failed(f"mvn could not fetch Kafka {VERSION} into {folder}:\n"
                             f"{done.stdout[-2000:]}\nSee to its settings and the network; or {HELP}")
            os.replace(jars, folder)
    found = digest(folder)
    if found != SHA256:
        raise Failed(f"the jars in {folder} have the digest {found}, not {SHA256}: delete the folder "
                     f"and try again; or {HELP}")
    return folder


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def run_before_others():
    """In the broker's process, before it begins: what tailcast's caches give themselves (docs/caches.md, "Priority"),
    if they may."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -10)
        pathlib.Path("/proc/self/autogroup").write_text("-10")
    except OSError:
        pass  # nor may they


class Kafka:
    name = "kafka"

    def __init__(self, load, jars, folder, partitions):
        """`load`: the load generator. `jars`: None: fetched."""
        if not os.path.exists(load):
            raise Failed(f"there is no {load}: it is built where librdkafka is found; install librdkafka-dev")
        if shutil.which("java") is None:
            raise Failed("java is missing: install a JRE, 17 or newer (default-jre-headless)")
        if jars is None:
            base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
            jars = fetch(os.path.join(base, "tailcast"))
        elif not list(pathlib.Path(jars).glob("kafka_*.jar")):
            raise Failed(f"there is no kafka_*.jar in {jars}")
        self.load, self.partitions = load, partitions
        port, controller = free_ports(2)
        self.brokers = f"127.0.0.1:{port}"
        data = os.path.join(folder, "kafka")
        config = os.path.join(folder, "kafka.properties")
        logging = os.path.join(folder, "log4j2.properties")
        pathlib.Path(config).write_text(PROPERTIES.format(port=port, controller=controller, data=data))
        pathlib.Path(logging).write_text(LOGGING)
        self.log = open(os.path.join(folder, "kafka.log"), "w+")
        java = ["java", *JAVA_OPTIONS, f"-Dlog4j2.configurationFile={logging}", "-cp", f"{jars}/*"]
        formatted = subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", "dGFpbGNhc3QtYmVuY2gtMQ", "-c", config],
            stdout=self.log, stderr=subprocess.STDOUT)
        if formatted.returncode != 0:
            raise Failed(f"Kafka's storage could not be formatted:\n{self.said()}")
        self.process = spawn([*java, "kafka.Kafka", config], stdout=self.log, stderr=subprocess.STDOUT,
                             preexec_fn=run_before_others)
        deadline = time.monotonic() + START_SECONDS
        while not self.listens(port):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise Failed(f"Kafka did not start:\n{self.said()}")
            time.sleep(0.1)  # it tells nobody that it has started

    def said(self):
        self.log.seek(0)
        return self.log.read()[-3000:]

    @staticmethod
    def listens(port):
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0

    def tool(self, command, stream, *arguments):
        return [self.load, command, "--brokers", self.brokers, "--topic", stream, *arguments]

    def server_pids(self):
        return [self.process.pid]

    def begin(self, stream):
        subprocess.run(self.tool("create", stream, "--partitions", str(self.partitions)), check=True)

    def end(self, stream):
        subprocess.run(self.tool("delete", stream), check=True)

    def produce(self, stream, row):
        rate = row["asked_mb_per_s"]
        return self.tool("produce", stream, "--mb-per-s", 0 if rate == "max" else rate,
                         "--seconds", row["seconds"] + row["warmup"])

    def consume(self, stream, row):
        threads = row["consumers"] if row["mode"] == "threads" else 1
        return self.tool("consume", stream, "--threads", threads, "--warmup", row["warmup"],
                         "--until-idle", row["idle"])

    def stop(self):
        end(self.process, signal.SIGTERM)
