"""The command line of `bench/race`."""

import argparse
import platform
import re
import subprocess
import sys
import tempfile
import time
from http.client import HTTPException
from pathlib import Path

from racing import chart, delivery, install, leases, report
from racing.course import Course
from racing.process import Cpus
from racing.scale import FULL, QUICK

# Java with as little memory as its processor handles the backlog in.
SMALL_HEAP = ("-XX:+UseSerialGC", "-Xmx64m", "-XX:TieredStopAtLevel=1", "-Xss512k")


class Parser(argparse.ArgumentParser):
    def error(self, message):
        print(f"bench/race: {message}; see bench/race --help", file=sys.stderr)
        raise SystemExit(2)


def arguments():
    parser = Parser(
        prog="bench/race", allow_abbrev=False,
        description="Java's ChangeFeedProcessor and ours, in processes of their own, against one changefeed server. "
                    "Prints a table; exits with 0 whether goals are met or missed, with 2 after an error.")
    parser.add_argument("--quick", action="store_true", help="less of everything: about five minutes once all is built")
    parser.add_argument("--json", metavar="FILE", type=Path, help="writes the rows to this file, and the chart beside it")
    parser.add_argument("--chart", metavar="FILE", type=Path, help="writes the chart (SVG) to this file instead")
    args = parser.parse_args()
    for name in ("json", "chart"):
        path = getattr(args, name)
        if path and path.is_dir():
            parser.error(f"--{name} {path} is a folder: name a file")
        if path and not path.absolute().parent.is_dir():
            parser.error(f"--{name} {path}: there is no folder {path.absolute().parent}")
    if args.json and not args.chart:
        args.chart = args.json.with_suffix(".svg")
    return args


def java_version():
    text = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    return text.splitlines()[0]


def sdk_version():
    pom = (install.ROOT / "bench" / "java" / "pom.xml").read_text(encoding="utf-8")
    return re.search("<azure-cosmos.version>(.*)</azure-cosmos.version>", pom)[1]


def machine(cpus, scale, quick):
    model = platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    return (f"{time.strftime('%Y-%m-%d', time.gmtime())}, {model}, {cpus.describe()}, {java_version()}, azure-cosmos "
            f"{sdk_version()}, {'--quick' if quick else 'full'}: {scale.items} items of 256 bytes, {scale.laps} laps after "
            f"{scale.warm_up} of Java and {scale.warm_up_ours} of ours, Java with default flags unless the row says "
            f"otherwise (small heap: {' '.join(SMALL_HEAP)})")


def main():
    args = arguments()
    try:
        programs = install.programs()
        scale, cpus = (QUICK if args.quick else FULL), Cpus()
        described = machine(cpus, scale, args.quick)
        with tempfile.TemporaryDirectory(prefix="changefeed-race-") as folder:
            course = Course(programs, scale, cpus, Path(folder), SMALL_HEAP)
            begin = time.monotonic()
            delivery.race(course)
            leases.race(course)
        found = report.lines(course.results, described)
    except (install.Missing, RuntimeError, OSError, HTTPException, subprocess.CalledProcessError) as error:
        print(f"bench/race: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bench/race: interrupted; nothing was written", file=sys.stderr)
        return 130
    print(f"{described}\nmeasured in {time.monotonic() - begin:.0f} s\n")
    print(report.table(found))
    if args.json:
        report.write(args.json, found)
    if args.chart:
        args.chart.write_text(chart.draw(found, "changefeed and Java's ChangeFeedProcessor"), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
