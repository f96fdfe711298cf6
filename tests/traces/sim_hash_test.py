"""A run of the simulator is a function of its seed: two processes, with other addresses, another
environment and other garbage in fresh memory, print the same trace hashes. So does another build."""

import os
import subprocess
import unittest

RUNNER = os.environ["TAILCAST_SIM_RUNNER"]
OTHER_RUNNER = os.environ.get("TAILCAST_OTHER_SIM_RUNNER", RUNNER)
RUNS = os.environ.get("TAILCAST_SIM_HASH_RUNS", "12")


def run(runner, environment):
    done = subprocess.run([runner, "--seed", "1", "--runs", RUNS], env=environment,
                          capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    return [line for line in done.stdout.splitlines() if line.startswith("seed ")]


class SimHash(unittest.TestCase):
    def test_two_processes_print_the_same_hashes(self):
        one = run(RUNNER, {"MALLOC_PERTURB_": "85"})
        other = run(OTHER_RUNNER, {"MALLOC_PERTURB_": "170", "PADDING": "x" * 4321, "TZ": "Asia/Tokyo"})
        self.assertEqual(len(one), int(RUNS))
        self.assertEqual(one, other)


if __name__ == "__main__":
    unittest.main()
