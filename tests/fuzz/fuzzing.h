// Fuzzers of what reads files and texts from elsewhere. Each is a function of an input: a
// RequestError is a right answer to any, and everything else that ends the function early is a
// finding: another exception, a broken promise, a sanitizer's report. libFuzzer calls them
// (libfuzzer.cc), and the tests with the inputs in tests/fuzz/corpus (replay.cc).
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace trident::fuzzing {

struct Fuzzer {
  std::string_view name;  // of its corpus, too
  void (*run)(std::string_view input);
};
std::span<const Fuzzer> fuzzers();
const Fuzzer* find_fuzzer(std::string_view name);  // nullptr where there is none

void fuzz_checkpoint(std::string_view input);
void fuzz_config(std::string_view input);
void fuzz_documents(std::string_view input);
void fuzz_grid(std::string_view input);
void fuzz_hosts(std::string_view input);
void fuzz_hugging_face(std::string_view input);
void fuzz_hugging_face_config(std::string_view input);
void fuzz_json(std::string_view input);
void fuzz_link_table(std::string_view input);
void fuzz_machine(std::string_view input);
void fuzz_manifest(std::string_view input);
void fuzz_memory(std::string_view input);
void fuzz_metrics(std::string_view input);
void fuzz_names(std::string_view input);
void fuzz_report(std::string_view input);
void fuzz_run_file(std::string_view input);
void fuzz_safetensors(std::string_view input);
void fuzz_schedule(std::string_view input);
void fuzz_starts(std::string_view input);
void fuzz_times(std::string_view input);
void fuzz_tokenizer(std::string_view input);
void fuzz_tokens(std::string_view input);

// Whether the action ends without a RequestError.
template <class Action>
bool accepted(Action action) {
  try {
    action();
    return true;
  } catch (const RequestError&) {
    return false;
  }
}

// Aborts, saying which promise is broken, unless it holds.
void require(bool holds, std::string_view promise);

// An empty folder of this process's, until the next call.
std::string empty_folder();

// Files in one input: "--- NAME" and its contents, up to the next line that begins so. Names that
// could lead out of a folder are left out.
std::map<std::string, std::string> files_in(std::string_view input);
// Writes them into `folder`; those that end in .safetensors as safetensors_file() has them.
void write_files(const std::string& folder, const std::map<std::string, std::string>& files);

// `text` itself, or where it doesn't begin with the length of a header: the header is what is
// before the first NUL, the data what is after it. No mutation hits the length otherwise.
std::string safetensors_file(std::string_view text);

// What `separator` separates, at least one part.
std::vector<std::string> split(std::string_view text, char separator);

}  // namespace trident::fuzzing
