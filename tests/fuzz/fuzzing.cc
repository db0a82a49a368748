#include "fuzz/fuzzing.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "support/temp_dir.h"

namespace trident::fuzzing {
namespace {

namespace fs = std::filesystem;

constexpr Fuzzer kFuzzers[] = {
    {"checkpoint", fuzz_checkpoint},
    {"config", fuzz_config},
    {"documents", fuzz_documents},
    {"grid", fuzz_grid},
    {"hosts", fuzz_hosts},
    {"hugging_face", fuzz_hugging_face},
    {"hugging_face_config", fuzz_hugging_face_config},
    {"json", fuzz_json},
    {"link_table", fuzz_link_table},
    {"machine", fuzz_machine},
    {"manifest", fuzz_manifest},
    {"memory", fuzz_memory},
    {"metrics", fuzz_metrics},
    {"names", fuzz_names},
    {"report", fuzz_report},
    {"run_file", fuzz_run_file},
    {"safetensors", fuzz_safetensors},
    {"schedule", fuzz_schedule},
    {"starts", fuzz_starts},
    {"times", fuzz_times},
    {"tokenizer", fuzz_tokenizer},
    {"tokens", fuzz_tokens},
};

// Whether the name is of a file in the folder, or in a folder that this program makes there.
bool stays_inside(std::string_view name) {
  for (const std::string_view inner : {"trident/", ".trident-saving/"}) {
    if (name.starts_with(inner)) name.remove_prefix(inner.size());
  }
  return !name.empty() && name.size() < 100 && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

}  // namespace

std::span<const Fuzzer> fuzzers() {
  return kFuzzers;
}

const Fuzzer* find_fuzzer(std::string_view name) {
  const auto* found = std::ranges::find(kFuzzers, name, &Fuzzer::name);
  return found == std::end(kFuzzers) ? nullptr : found;
}

void require(bool holds, std::string_view promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %.*s\n", static_cast<int>(promise.size()), promise.data());
  std::abort();
}

std::string empty_folder() {
  static const testing::TempDir own;
  const std::string folder = own / "input";
  fs::remove_all(folder);
  fs::create_directory(folder);
  return folder;
}

std::map<std::string, std::string> files_in(std::string_view input) {
  constexpr std::string_view head = "--- ", next = "\n--- ";
  std::map<std::string, std::string> files;
  while (input.starts_with(head)) {
    const std::size_t end = std::min(input.find(next), input.size());
    const std::string_view file = input.substr(head.size(), end - std::min(end, head.size()));
    const std::size_t line = std::min(file.find('\n'), file.size());
    const std::string name(file.substr(0, line));
    if (stays_inside(name)) files[name] = file.substr(std::min(line + 1, file.size()));
    input.remove_prefix(std::min(end + 1, input.size()));
  }
  return files;
}

void write_files(const std::string& folder, const std::map<std::string, std::string>& files) {
  for (const auto& [name, text] : files) {
    const fs::path path = fs::path(folder) / name;
    std::error_code code;  // a file may have the name of the folder
    fs::create_directories(path.parent_path(), code);
    if (code || fs::is_directory(path)) continue;
    testing::spit(path.string(), name.ends_with(".safetensors") ? safetensors_file(text) : text);
  }
}

std::string safetensors_file(std::string_view text) {
  if (!text.starts_with('{')) return std::string(text);
  const std::size_t end = std::min(text.find('\0'), text.size());
  std::string file;
  for (std::size_t i = 0; i < 8; ++i) file += static_cast<char>(end >> (8 * i) & 0xff);
  file += text.substr(0, end);
  return file.append(text.substr(std::min(end + 1, text.size())));
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> list;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    list.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return list;
}

}  // namespace trident::fuzzing
