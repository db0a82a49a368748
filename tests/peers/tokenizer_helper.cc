// Exposes our tokenizers to tokenizer_peer.py, which compares them with Hugging Face's: one JSON
// request a line on standard input, one JSON answer a line.
#include <fmt/format.h>

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/files/file.h"
#include "base/utf8.h"
#include "datasets/tokenizer/tokenizer.h"

namespace trident {
namespace {

using nlohmann::json;

// {"encode": text, "prompt": false} or {"decode": ids, "skip_special": true} or {"token": text}.
json answer(const Tokenizer& tokenizer, Tokenizer::Memory& memory, const json& request) {
  if (request.contains("decode")) {
    return tokenizer.decode(request["decode"].get<std::vector<std::int32_t>>(),
                            request.value("skip_special", true));
  }
  const std::string text = request.contains("file")
                               ? replace_invalid_utf8(read_file(request["file"].get<std::string>()))
                               : request["encode"].get<std::string>();
  if (request.value("prompt", false)) return tokenizer.encode_prompt(text);
  std::vector<std::int32_t> ids;
  if (request.contains("time")) {
    const auto begin = std::chrono::steady_clock::now();
    tokenizer.encode(text, memory, ids);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  if (!request.contains("split")) {
    tokenizer.encode(text, memory, ids);
    return ids;
  }
  // The minimum bytes of a part. If it is set, the answer has the number of parts.
  std::size_t parts = 0;
  for (std::size_t begin = 0; begin < text.size(); ++parts) {
    std::size_t end =
        tokenizer.next_split_point(text, begin + request["split"].get<std::size_t>(), memory);
    end = std::min(end, text.size());
    tokenizer.encode(std::string_view(text).substr(begin, end - begin), memory, ids, begin > 0);
    begin = end;
  }
  return {{"ids", ids}, {"parts", parts}};
}

int run(const std::string& path) {
  const Tokenizer tokenizer(read_file(path), path);
  Tokenizer::Memory memory(tokenizer);
  fmt::print("{}\n", tokenizer.vocab_size());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    json result;
    try {
      result = answer(tokenizer, memory, json::parse(line));
    } catch (const Error& error) {
      result = {{"error", error.what()}};
    }
    fmt::print("{}\n", result.dump(-1, ' ', true, json::error_handler_t::strict));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace trident

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: tokenizer_helper TOKENIZER.JSON\n");
    return 2;
  }
  try {
    return trident::run(argv[1]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "tokenizer_helper: {}\n", error.what());
    return 2;
  }
}
