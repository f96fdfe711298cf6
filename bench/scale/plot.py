#!/usr/bin/env python3
"""Draws what ./dev sim scale has run: one picture for each experiment, beside what the paper's figure of it says.

  plot.py RUN.json FOLDER      writes FOLDER/figure-8.svg to figure-14.svg, and names them
"""
import json
import pathlib
import sys

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402

# What the paper's text gives of a curve: (its panel, value, words).
PAPER = {
    "1a": [("read_gbps", 70, "paper: peak 70"), ("reads_per_s", 4.5e6, "paper: peak 4.5 M"), ("p99_s", 0.5, "paper: 0.5")],
    "1b": [("reads_per_s", 4.7e6, "paper: peak 4.7 M")],
    "1c": [("p99_s", 1.8, "paper: most 1.8"), ("p99_s", 0.6, "paper: mostly below 0.6")],
    "1d": [("fallbacks_per_s", 60e3, "paper: 60,000"), ("p99_s", 2, "paper: most 2")],
    "2a": [("read_gbps", 1800, "paper: peak 1,800"), ("data_servers", 481, "paper: 481 at the end"),
           ("metadata_servers", 81, "paper: 81 at the end"),
           ("value_reads_per_s", 19.2e6, "paper: peak 19.2 M"), ("p99_s", 2.5, "paper: below 2.5")],
    "2b": [("read_gbps", 645, "paper: peak 645"), ("data_servers", 406, "paper: most 406"),
           ("data_servers", 171, "paper: 171 at the end"), ("value_reads_per_s", 6.24e6, "paper: peak 6.24 M"),
           ("metadata_servers", 29, "paper: most 29"), ("fallbacks_per_s", 300e3, "paper: most 300,000"),
           ("p99_s", 3, "paper: above 3")],
    "2c": [("read_gbps", 1600, "paper: peak 1,600"), ("read_gbps", 600, "paper: then 600"),
           ("data_servers", 184, "paper: most 184")],
}
PANELS = [("consumers", "consumers"), ("read_gbps", "reads of the data cache, Gbit/s"),
          ("reads_per_s", "chunk reads/s"), ("value_reads_per_s", "reads of lengths/s"),
          ("data_servers", "data servers"), ("metadata_servers", "metadata servers"), ("fallbacks_per_s", "reads of the primary layer/s"),
          ("p99_s", "delay of who keeps up, p99, s"), ("behind_s", "who catches up is behind, s")]


def draw(experiment, folder):
    figure, axes = pyplot.subplots(len(PANELS), 1, sharex=True, figsize=(9, 2 * len(PANELS)), layout="constrained")
    number = experiment["name"]
    figure.suptitle(f"Experiment {number[0]} ({number[1]}): {experiment['title']}")
    for axis, (key, label) in zip(axes, PANELS):
        for cell in experiment["cells"]:
            axis.plot(cell["time_s"], cell[key], label=f"tailcast, {cell['cell']}")
        for panel, value, words in PAPER.get(number, []):
            if panel == key:
                axis.axhline(value, linestyle="--", color="grey")
                axis.annotate(words, (0.01, value), xycoords=("axes fraction", "data"), va="bottom", fontsize=8)
        axis.set_ylabel(label, fontsize=8)
        axis.margins(y=0.15)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    axes[-1].set_xlabel("seconds")
    path = folder / f"figure-{experiment['figure']}.svg"
    figure.savefig(path)
    pyplot.close(figure)
    return path


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for experiment in json.loads(pathlib.Path(sys.argv[1]).read_text()):
        print(draw(experiment, folder))


if __name__ == "__main__":
    main()
