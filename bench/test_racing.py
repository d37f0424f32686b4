"""Tests of what turns measurements into rows: python3 -m unittest discover -s bench"""

import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from collections import defaultdict
from pathlib import Path

from racing import chart, ledger, report
from racing.process import Cpus, cpu_seconds, pinned_to, resident_bytes

RACE = Path(__file__).with_name("race")


def results(ours=1.0, cosmos=2.0, java=20.0, small=10.0):
    values = {"remote": [ours], "cosmos": [cosmos], "java": [java], "java-small-heap": [small]}
    return defaultdict(dict, {row.result: dict(values) for row in report.ROWS})


class LedgerTest(unittest.TestCase):
    def setUp(self):
        self.patience, ledger.PATIENCE = ledger.PATIENCE, 0
        self.folder = tempfile.TemporaryDirectory()
        self.file = Path(self.folder.name) / "ledger"

    def tearDown(self):
        ledger.PATIENCE = self.patience
        self.folder.cleanup()

    def test_lost_and_repeated_changes_are_counted(self):
        self.file.write_text("10 a b\n20 b\n", encoding="utf-8")
        found = ledger.Ledgers(self.file)
        self.assertEqual(found.compare(["a", "b", "c", "d"]), (2, 1))
        self.assertEqual((found.batches, found.first["b"]), (2, 10))

    def test_a_line_counts_once_it_is_complete(self):
        self.file.write_text("10 a\n20 ab", encoding="utf-8")
        found = ledger.Ledgers(self.file).read()
        self.assertEqual(set(found.count), {"a"})
        with open(self.file, "a", encoding="utf-8") as file:
            file.write("c\n")
        self.assertEqual(set(found.read().count), {"a", "abc"})

    def test_an_id_that_nobody_wrote_is_an_error(self):
        self.file.write_text("10 a x\n", encoding="utf-8")
        with self.assertRaisesRegex(RuntimeError, "nobody wrote"):
            ledger.Ledgers(self.file).compare(["a"])


class ReportTest(unittest.TestCase):
    def test_each_row_has_the_members_that_are_promised(self):
        for line in report.lines(results(), "here"):
            self.assertLessEqual({"row", "ours", "java", "ratio", "goal", "met"}, set(line))

    def test_goals_are_met_or_missed_by_the_ratio(self):
        def met(**values):
            return {line["row"]: line["met"] for line in report.lines(results(**values), "here")}

        good, bad = met(ours=1.0, java=20.0), met(ours=3.0, java=20.0)
        self.assertEqual((good["cpu_seconds_per_million_changes"], bad["cpu_seconds_per_million_changes"]), (True, False))
        self.assertTrue(good["lease_requests_per_checkpoint"])
        self.assertFalse(met(ours=20.0)["lease_requests_per_checkpoint"])
        self.assertIsNone(good["takeover_after_kill"])
        self.assertEqual((met(ours=0.0)["lost"], met(ours=1.0)["lost"]), (True, False))

    def test_the_small_heap_stands_against_a_row_of_its_own(self):
        found = {line["row"]: line for line in report.lines(results(small=5.0), "here")}
        self.assertEqual(found["memory_loaded"]["java"], 20.0)
        self.assertEqual(found["memory_loaded_small_heap"]["java"], 5.0)

    def test_each_store_has_a_verdict_of_its_own(self):
        found = {line["row"]: line for line in report.lines(results(ours=1.0, cosmos=2.0, small=12.0), "here")}
        row, cosmos = found["memory_loaded_small_heap"], found["memory_loaded_small_heap_cosmos"]
        self.assertEqual((row["met"], row["met_cosmos"], cosmos["met"]), (True, False, False))
        self.assertEqual((row["ours_cosmos"], row["ratio_cosmos"]), (2.0, cosmos["ratio"]))
        self.assertIsNone(found["takeover_after_kill"]["met_cosmos"])

    def test_the_table_shows_the_verdict_on_each_store(self):
        head, _, *body = report.table(report.lines(results(ours=1.0, cosmos=2.0, small=12.0), "here")).splitlines()
        columns = [cell.strip() for cell in head.strip("|").split("|")]
        rows = [dict(zip(columns, (cell.strip() for cell in line.strip("|").split("|")))) for line in body]
        self.assertEqual([row["row"] for row in rows], [row.name for row in report.ROWS])
        small = next(row for row in rows if row["row"] == "memory_loaded_small_heap")
        self.assertEqual((small["remote"], small["cosmos"], small["java"]), ("1", "2", "12"))
        self.assertEqual((small["goal"], small["met"], small["met cosmos"]), ("ratio <= 0.1", "yes", "NO"))

    def test_losses_add_up_and_times_are_medians(self):
        values = results()
        values["lost"]["java"], values["takeover"]["remote"] = [0, 2, 1], [9.0, 1.0, 2.0]
        found = {line["row"]: line for line in report.lines(values, "here")}
        self.assertEqual((found["lost"]["java"], found["takeover_after_kill"]["ours"]), (3, 2.0))

    def test_without_a_value_of_java_there_is_no_ratio(self):
        found = {line["row"]: line for line in report.lines(results(java=0.0), "here")}
        self.assertIsNone(found["takeover_after_kill"]["ratio"])

    def test_a_row_without_measurements_is_an_error(self):
        values = results()
        values["cpu"]["cosmos"] = []
        with self.assertRaisesRegex(RuntimeError, "cpu_seconds_per_million_changes"):
            report.lines(values, "here")

    def test_the_chart_is_an_image_with_a_bar_for_each_store(self):
        found = report.lines(results(), "here")
        image = xml.fromstring(chart.draw(found, "a <title>"))
        bars = [one for one in image.iter("{http://www.w3.org/2000/svg}rect") if one.get("height") == str(chart.BAR)]
        self.assertEqual(len(bars), 2 * sum(row.chart for row in report.ROWS))


class ProcessTest(unittest.TestCase):
    def test_this_process_uses_time_and_memory(self):
        self.assertGreater(cpu_seconds(os.getpid()), 0)
        self.assertGreater(resident_bytes(os.getpid()), 2**20)

    def test_from_four_processors_on_hosts_and_server_have_their_own(self):
        few, many = Cpus([0, 1]), Cpus([0, 1, 2, 3, 4, 5])
        self.assertEqual((few.server, few.host(0, 1)), (None, None))
        self.assertEqual((many.server, many.host(0, 1)), ([0, 1, 2], [3, 4, 5]))
        self.assertEqual((many.host(0, 2), many.host(1, 2)), ([3], [4]))

    def test_a_command_is_pinned_by_what_stands_before_it(self):
        cpu = min(os.sched_getaffinity(0))
        self.assertEqual(pinned_to(None), [])
        code = "import os; print(sorted(os.sched_getaffinity(0)))"
        found = subprocess.run([*pinned_to([cpu]), sys.executable, "-c", code], capture_output=True, text=True, check=True)
        self.assertEqual(found.stdout.strip(), f"[{cpu}]")


class CommandLineTest(unittest.TestCase):
    def test_bad_options_get_a_sentence_and_exit_code_2(self):
        for words in (["--fast"], ["--json"], ["--json", "/"], ["--json", "/none/out.json"], ["rows"]):
            done = subprocess.run([RACE, *words], capture_output=True, text=True, cwd="/", check=False)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertTrue(done.stderr.startswith("bench/race: ") and done.stderr.count("\n") == 1, done.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main())
