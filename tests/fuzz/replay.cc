// replay PARSER FOLDER: runs a fuzzer's corpus once through its parser, without libFuzzer. Each
// build has it as a test, so that old findings are found again. The last file named on standard
// output is the input at which it ended.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "fuzz/fuzzing.h"
#include "support/temp_dir.h"

int main(int count, char** arguments) {
  namespace fs = std::filesystem;
  const auto* fuzzer = count == 3 ? trident::fuzzing::find_fuzzer(arguments[1]) : nullptr;
  if (fuzzer == nullptr) {
    std::fprintf(stderr, "usage: replay PARSER FOLDER\n");
    return 2;
  }
  std::vector<std::string> files;
  for (const auto& file : fs::directory_iterator(arguments[2])) files.push_back(file.path());
  std::ranges::sort(files);
  for (const std::string& file : files) {
    std::printf("%s\n", file.c_str());
    std::fflush(stdout);
    fuzzer->run(trident::testing::slurp(file));
  }
  std::printf("%zu inputs\n", files.size());
  return files.empty() ? 1 : 0;  // an empty corpus verifies nothing
}
