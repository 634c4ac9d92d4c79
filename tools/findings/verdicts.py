"""What tools/findings/run does with what the kit has found.

verdict.json says of each check how it ends, or "left out: WHY" where the runs differ or the kit is wrong.
"""

import json
import pathlib
import re
import sys

BEGIN, END = "<!-- findings -->", "<!-- end of findings -->"
GRADES = ("unsafe", "unclear", "holds", "not_known")


def is_left_out(outcome):
    return outcome.startswith("left out: ")


def table(outcomes):
    return "\n".join(
        f"  {grade:<10} {', '.join(found)}"
        for grade in (*GRADES, "left out")
        if (found := [check for check, outcome in outcomes.items() if outcome.partition(":")[0] == grade])
    )


def compare(folder, reports, record):
    """Each report must say what verdict.json does."""
    runs = [
        {found["name"]: found["outcome"] for found in json.loads(report.read_text())["findings"]}
        for report in reports
    ]
    verdict = folder / "verdict.json"
    known = json.loads(verdict.read_text()) if verdict.exists() else {}
    if record:
        new = {}
        for check, outcome in runs[0].items():
            if is_left_out(known.get(check, "")):
                outcome = known[check]
            elif len({run.get(check) for run in runs}) > 1:
                outcome = f"left out: {', '.join(run.get(check, 'missing') for run in runs)} in {len(runs)} runs"
            new[check] = outcome
        known = new
        verdict.write_text(json.dumps(known, indent=2) + "\n")
    print(f"{folder.name}\n{table(known)}", flush=True)
    same = True
    for number, run in enumerate(runs, start=1):
        for check in sorted(run.keys() | known.keys()):
            was, is_now = known.get(check, "missing"), run.get(check, "missing")
            if was != is_now and not is_left_out(was):
                print(f"  DIFFERS    {check} in run {number}: {is_now}, and verdict.json has {was}")
                same = False
    return same


def page(path, record):
    """docs/findings.md has a row for each library, and its page."""
    rows = ["| library | unsafe | unclear | holds |", "|---|---|---|---|"]
    pages = []
    for folder in sorted(path.parent.parent.glob("tools/findings/*/")):
        text = (folder / "page.md").read_text().strip()
        title = text.partition("\n")[0].removeprefix("### ")
        anchor = re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        outcomes = json.loads((folder / "verdict.json").read_text())
        names = {
            grade: [f"`{check}`" for check, outcome in outcomes.items() if outcome == grade] for grade in GRADES
        }
        cells = [", ".join(names["unsafe"]), ", ".join(names["unclear"]), str(len(names["holds"]))]
        rows.append(f"| [{title}](#{anchor}) | " + " | ".join(cells) + " |")
        pages.append(text)
    before, _, rest = path.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    made = f"{before}{BEGIN}\n" + "\n".join(rows) + "\n\n" + "\n\n".join(pages) + f"\n{END}{after}"
    if record:
        path.write_text(made)
    same = made == path.read_text()
    if not same:
        print(f"{path.name} lacks what the folders say: tools/findings/run --record")
    return same


def main():
    what, *arguments = sys.argv[1:]
    record = "--record" in arguments
    first, *rest = [pathlib.Path(argument) for argument in arguments if argument != "--record"]
    return compare(first, rest, record) if what == "compare" else page(first, record)


if __name__ == "__main__":
    sys.exit(not main())
