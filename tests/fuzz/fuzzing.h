// Fuzzers of the parsers of foreign files and texts. Each is a function of an input. A RequestError
// is a correct answer to any input. Every other early end of the function is a finding: another
// exception, a broken promise, a sanitizer's report. libFuzzer calls the fuzzers (libfuzzer.cc),
// and the tests call them with the inputs in tests/fuzz/corpus (replay.cc).
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace trident::fuzzing {

struct Fuzzer {
  std::string_view name;  // and of its corpus
  void (*run)(std::string_view input);
};
std::span<const Fuzzer> fuzzers();
const Fuzzer* find_fuzzer(std::string_view name);  // nullptr: no such fuzzer

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

// Aborts with the broken promise unless the condition holds.
void require(bool holds, std::string_view promise);

// An empty folder of this process. The next call empties it again.
std::string empty_folder();

// The files in one input: "--- NAME" and the contents, up to the next line that begins with "--- ".
// Names that could lead out of a folder are dropped.
std::map<std::string, std::string> files_in(std::string_view input);
// Writes the files into `folder`. Files that end in .safetensors are written as safetensors_file()
// makes them.
void write_files(const std::string& folder, const std::map<std::string, std::string>& files);

// `text` itself, if it begins with the length of a header. Otherwise a file whose header is the
// text before the first NUL and whose data is the text after it, as mutations would not find the
// length.
std::string safetensors_file(std::string_view text);

// The parts between the separators, at least one part.
std::vector<std::string> split(std::string_view text, char separator);

}  // namespace trident::fuzzing
