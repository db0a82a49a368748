"""The wheel has a program inside: it is of no one Python, but of systems from some C library on."""

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
