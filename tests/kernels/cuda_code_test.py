#!/usr/bin/env python3
"""Reads the kernels' machine code in a program: cuda_code_test.py CUOBJDUMP PROGRAM ARCHITECTURE...
with CMake's names of the architectures that it was built for (90-real).

No kernel of ours may spill registers or keep a stack in local memory, but for a few bytes outside
sm_90 and the kernels named below with their reason. Kernels that stream through memory must use 16-byte accesses.
"""
import re
import subprocess
import sys

# A part of the demangled name -> the reason why this kernel may have a stack.
STACK_ALLOWED = {
    "FillNormal": "sin and cos of fp64 reduce large arguments with a table in local memory",
    "FillTable": "sin, cos and pow of fp64 reduce large arguments with a table in local memory",
}
# The registers of kernels are tuned on sm_90. Elsewhere the compiler saves a few around calls of
# fp64 functions, or to fit as many blocks.
STACK_ELSEWHERE = 32
# Kernels that access packs wider than one element: those with these names and a pack size above 1.
STREAMING = re.compile(
    r"(elementwise_kernel|forward_kernel|backward_kernel|partial_column_sums|add_rows_by_id|"
    r"maximum_kernel|statistics_kernel|gradient_kernel|chunk_sums)<"
)


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def demangled(names):
    text = subprocess.run(["c++filt"], input="\n".join(names), check=True, capture_output=True, text=True)
    return text.stdout.split("\n")


def main():
    cuobjdump, program, *built_for = sys.argv[1:]
    failures = []
    architectures = set()
    usage = []  # (architecture, mangled name, registers, stack, local)
    architecture = name = None
    for line in output(cuobjdump, "--dump-resource-usage", program).splitlines():
        if found := re.search(r"arch = (sm_\w+)", line):
            architecture = found[1]
        elif found := re.match(r"\s*Function (\S+):", line):
            name = found[1]
        elif found := re.search(r"REG:(\d+) STACK:(\d+).*LOCAL:(\d+)", line):
            usage.append((architecture, name, *map(int, found.groups())))
            architectures.add(architecture)
    names = demangled([u[1] for u in usage])
    ours = [(u, n) for u, n in zip(usage, names) if "trident::cuda" in n and "cub::" not in n]
    for (architecture, _, registers, stack, local), name in ours:
        allowed = 0 if architecture == "sm_90" else STACK_ELSEWHERE
        if stack + local > allowed and not any(part in name for part in STACK_ALLOWED):
            failures.append(f"{architecture}: {name}: {stack} bytes of stack, {local} local")
    for number in (name.removesuffix("-real") for name in built_for if name.endswith("-real")):
        wanted = f"sm_{number}"
        if wanted not in architectures:
            failures.append(f"no machine code for {wanted}, only {sorted(architectures)}")

    # One architecture is enough: the compiler's front end chooses the accesses.
    wide = narrow = 0
    function, code = None, {}
    for line in output(cuobjdump, "--dump-sass", "--gpu-architecture", "sm_90", program).splitlines():
        if found := re.match(r"\s*Function : (\S+)", line):
            function = found[1]
            code[function] = []
        elif function and "/*" in line:
            code[function].append(line)
    functions = list(code)
    for mangled, name in zip(functions, demangled(functions)):
        if "trident::cuda" not in name or not STREAMING.search(name):
            continue
        # The pack size is the last number of a row's layout; in other kernels it is the first
        # number.
        row = re.search(r"(?:forward_kernel|backward_kernel)<\d+, \d+, (\d+)", name)
        first = re.search(r"_kernel<(\d+)|_sums<(\d+)|_id<(\d+)", name)
        pack = int(row[1]) if row else int(next(g for g in first.groups() if g)) if first else 1
        if "_kernel<true, " in name:  # wide rows
            pack = 4
        if re.search(r"(forward|backward)_kernel<\d+, \d+, trident|_kernel<\d+, \d+, float", name):
            continue  # attention: tiles in shared memory
        text = "\n".join(code[mangled])
        if pack == 1:
            narrow += 1
            continue
        if not re.search(r"(LDG|STG|LD|ST)\.E(\.\w+)*\.128", text):
            failures.append(f"sm_90: {name}: packs of {pack}, and no access of 16 bytes")
        wide += 1
    print(f"{len(ours)} kernels on {', '.join(sorted(architectures))}; of sm_90's {wide} stream "
          f"with 16-byte accesses, {narrow} are for single elements")
    if wide < 50:
        failures.append(f"only {wide} streaming kernels were found")
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
