"""Compares what passes of the suites of Stripe's SDKs with the list of what has to: [--update] FOLDER LIST.

FOLDER/opened has a report for each suite, and FOLDER/refused one of the same tests where their key opens no account.
"""

import re
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

NOT_OFFERED = "asks for what isn't offered"
FIXTURE = "asks for an object that only stripe-mock has"


def reason(bad):
    """Why a test failed, in a line. PHPUnit's text begins with the test's name."""
    text = bad.get("message") or "\n".join((bad.text or "").strip().split("\n")[1:])
    text = re.sub(r"Request req_\w+: ", "", text).strip()
    if re.search(r"doesn't offer|[Ss]earch isn't offered", text):
        return NOT_OFFERED
    return FIXTURE if "No such " in text else text.split("\n")[0][:200]


def outcomes(report):
    """Of each test, why it failed: None if it passed."""
    found = {}
    for part in ElementTree.parse(report).iter("testsuite"):
        for case in part.iterfind("testcase"):
            file = (case.get("file") or part.get("file")).split(f"/{report.stem}/")[-1]
            test = " ".join(f"{report.stem} {file}::{case.get('name')}".split())
            bad = next((each for each in case if not each.tag.startswith("system-")), None)
            # Two tests can have one name.
            if found.get(test) is None:
                found[test] = None if bad is None else reason(bad)
    return found


def main(folder, list_file, update):
    listed = set(list_file.read_text().splitlines()) if list_file.exists() else set()
    passing, failing = set(), {}
    for report in sorted(folder.glob("opened/*.xml")):
        opened = outcomes(report)
        refused = outcomes(folder / "refused" / report.name)
        good = {test for test, why in opened.items() if why is None and refused[test] is not None}
        bad = {test: why for test, why in opened.items() if why is not None}
        due = {test for test in listed if test.startswith(f"{report.stem} ")}
        print(f"{report.stem}: {len(good)} pass, {len(due)} are listed, {len(bad)} fail")
        for why, count in Counter(bad.values()).most_common():
            print(f"  {count:4} {why}")
        passing |= good
        why_not = dict.fromkeys(opened, "passes where its key is refused, too") | bad
        failing |= {test: why_not.get(test, "didn't run") for test in due - good}

    for test, why in sorted(failing.items()):
        print(f"FAILS: {test}\n  {why}", file=sys.stderr)
    if failing:
        sys.exit(f"suites: listed tests that fail: {len(failing)}. The list stays as it is.")
    added = sorted(passing - listed)
    for test in added:
        print(f"passes, and isn't listed: {test}")
    if update:
        list_file.write_text("".join(f"{test}\n" for test in sorted(listed | passing)))
    elif added:
        print("tests/sdk/suites --update adds them.")


arguments = [each for each in sys.argv[1:] if each != "--update"]
main(Path(arguments[0]), Path(arguments[1]), "--update" in sys.argv)
