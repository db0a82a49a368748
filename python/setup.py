"""The wheel has a program inside, so it fits every Python, on systems whose C library is new enough."""

import os
import sys

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.dist import Distribution

PLATFORM = os.environ.get("TRIDENT_WHEEL_PLATFORM")
if not PLATFORM:
    sys.exit("this package needs the program beside it: scripts/package builds its wheel")


class WithProgram(Distribution):
    def has_ext_modules(self):
        return True


class Wheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", PLATFORM


setup(distclass=WithProgram, cmdclass={"bdist_wheel": Wheel})
