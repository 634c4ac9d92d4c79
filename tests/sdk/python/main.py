"""Runs the tests of this folder and prints them as the sentences that they are."""

import sys
import time
import unittest
from pathlib import Path

import stripe


class Sentences(unittest.TextTestResult):
    def startTest(self, test):
        self.began = time.monotonic()
        super().startTest(test)

    def say(self, outcome, test, why=""):
        sentence = test.id().split(".", 2)[2].removeprefix("test_")
        # The rows of the table of errors hold spaces, and names of parameters with underscores.
        if " " not in sentence:
            sentence = sentence.replace("_", " ")
        seconds = time.monotonic() - self.began
        print(f"  {outcome:<7} {seconds:6.2f} s  {sentence}{why}", flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.say("ok", test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.say("FAILED", test)

    def addError(self, test, err):
        super().addError(test, err)
        self.say("FAILED", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.say("skipped", test, f": {reason}")


def main():
    print(f"Python {sys.version.split()[0]}, stripe {stripe.VERSION}")
    tests = unittest.defaultTestLoader.discover(str(Path(__file__).parent))
    runner = unittest.TextTestRunner(stream=sys.stdout, verbosity=0, resultclass=Sentences)
    sys.exit(not runner.run(tests).wasSuccessful())


main()
