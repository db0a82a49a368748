#!/usr/bin/env bash
# A program linked with Debian's Oniguruma gets Oniguruma's regcomp() in place of the C library's.
#
# libonig5 6.9.8-1 (Debian 12), g++ 12.2, glibc 2.36, 2026-11-29. The shared library exports regcomp,
# regexec, regfree and regerror, its own POSIX interface (onigposix.h). A linker puts libonig before
# the C library, so every POSIX call in the program and in its other libraries ends there, GoogleTest's
# regular expressions of death tests among them. But the flags are other numbers there: <regex.h>'s
# REG_EXTENDED (1) is Oniguruma's "ignore case", and its own "extended" is not set. Nothing warns:
# patterns match text in the other case, and "|" and "+" are letters. --as-needed makes no difference,
# even for a program that calls nothing of Oniguruma. With -Wl,-lc before -lonig all is as it should
# be; a plain -lc there does nothing, as g++ moves it to the end.
# Where an interposer forwards only some of the four to the C library, as a sanitizer's does with
# regexec, one library's structure is read by the other: a test waited for ever on a lock in it.
#
# Seen (a pattern, REG_EXTENDED, a text: does it match?):
#   without:            AB~ab no   x|b~b yes   ab+~abb yes
#   -lonig:             AB~ab yes  x|b~b no    ab+~abb no
#   --as-needed -lonig: AB~ab yes  x|b~b no    ab+~abb no
#   -lc -lonig:         AB~ab yes  x|b~b no    ab+~abb no
#   -Wl,-lc -lonig:     AB~ab no   x|b~b yes   ab+~abb yes
# This script fails where that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -qq -o APT::Sandbox::User=root libonig5=6.9.8-1 libonig-dev=6.9.8-1
for package in *.deb; do dpkg -x "$package" root; done
libraries=$folder/root/usr/lib/$(g++ -print-multiarch)

cat >regex.cc <<'CODE'
#include <regex.h>

#include <cstdio>

int main() {
  const char* const cases[][2] = {{"AB", "ab"}, {"x|b", "b"}, {"ab+", "abb"}};
  for (const auto& [pattern, text] : cases) {
    alignas(16) char room[256] = {};  // larger than either library's structure
    regex_t* const regex = reinterpret_cast<regex_t*>(room);
    if (regcomp(regex, pattern, REG_EXTENDED) != 0) return 1;
    std::printf("%s~%s %s ", pattern, text, regexec(regex, text, 0, nullptr, 0) == 0 ? "yes" : "no");
    regfree(regex);
  }
  std::printf("\n");
}
CODE
failed=0
expect() {  # RESULT OPTION...
  local seen
  g++ -x c++ -std=c++17 regex.cc -x none -L"$libraries" -Wl,-rpath,"$libraries" "${@:2}" -o regex
  seen=$(./regex)
  echo "${*:2}: $seen"
  [[ $seen == "$1 " ]] || failed=1
}
posix="AB~ab no x|b~b yes ab+~abb yes" onigurumas="AB~ab yes x|b~b no ab+~abb no"
expect "$posix"
expect "$onigurumas" -lonig
expect "$onigurumas" -Wl,--as-needed -lonig
expect "$onigurumas" -lc -lonig
expect "$posix" -Wl,-lc -lonig
exit $failed
