"""The command `trident`: runs the program in this package."""

import os
import sys

from trident import program


def main():
    os.execv(program(), ["trident", *sys.argv[1:]])


if __name__ == "__main__":
    main()
