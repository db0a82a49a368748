// libFuzzer's entry points. --parser=NAME chooses the fuzzer.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "fuzz/fuzzing.h"

namespace {

const trident::fuzzing::Fuzzer* fuzzer = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  constexpr std::string_view option = "--parser=";
  for (int i = 1; i < *count; ++i) {
    const std::string_view argument = (*arguments)[i];
    if (argument.starts_with(option)) {
      fuzzer = trident::fuzzing::find_fuzzer(argument.substr(option.size()));
    }
  }
  if (fuzzer == nullptr) {
    std::fprintf(stderr, "fuzzer: --parser=NAME names none of:");
    for (const auto& one : trident::fuzzing::fuzzers()) {
      std::fprintf(stderr, " %.*s", static_cast<int>(one.name.size()), one.name.data());
    }
    std::fprintf(stderr, "\n");
    std::exit(2);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzzer->run({reinterpret_cast<const char*>(data), size});
  return 0;
}
