"""docs/ops/cluster.md: its configuration is one that a process takes, and its systemd unit runs the role of its name."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from harness import SystemTest, main, run

OPS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "ops"
UNIT = OPS / "tailcast@.service"
ANALYZE = shutil.which("systemd-analyze")


class ClusterDocTest(SystemTest):
    @unittest.skipUnless(ANALYZE, "there is no systemd-analyze on this machine: the unit is not verified by it")
    def test_systemd_takes_the_unit(self):
        done = subprocess.run([ANALYZE, "verify", UNIT], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_unit_runs_the_role_of_its_name(self):
        line = re.search(r"^ExecStart=/bin/sh -c '(.*)' %i$", UNIT.read_text(), re.M)
        self.assertIsNotNone(line)
        # What systemd makes of it: man 5 systemd.unit, systemd.service.
        script = line.group(1).replace("%%", "%").replace("$$", "$").replace("exec /usr/local/bin/tailcast", "echo")
        for name, role in (("cache-1", "cache"), ("scheduler", "scheduler"), ("reader-12", "reader"), ("writer-b-2", "writer")):
            done = subprocess.run(["/bin/sh", "-c", script, name], capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout, f"run --role {role} --config /etc/tailcast/{name}.yaml\n")

    def test_the_configuration_is_taken(self):
        text = re.search(r"```yaml\n(.*?)```", (OPS / "cluster.md").read_text(), re.S).group(1)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "p.yaml")
            # There is no such host: what it lacks is Ceph (1), not a key of the configuration (2).
            for change, code in (("/etc/ceph/", 1), ("listen:", 2)):
                pathlib.Path(path).write_text(text.replace(change, folder + "/"))
                self.check_fails(code, ["p.yaml"] if code == 2 else [], "run", "--role", "cache", "--config", path)


if __name__ == "__main__":
    main()
