// Megatron's .idx and .bin: the input's first two bytes are the length of the .idx, little-endian.
#include <algorithm>

#include "datasets/token_source.h"
#include "fuzz/fuzzing.h"
#include "support/temp_dir.h"

namespace trident::fuzzing {

void fuzz_tokens(std::string_view input) {
  if (input.size() < 2) return;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(input[i]); };
  const std::size_t length = byte(0) | static_cast<std::size_t>(byte(1)) << 8;
  input.remove_prefix(2);
  const std::string path = empty_folder() + "/tokens";
  testing::spit(path + ".idx", input.substr(0, length));
  testing::spit(path + ".bin", input.substr(std::min(length, input.size())));
  constexpr std::int32_t vocabulary = 256;
  std::unique_ptr<TokenSource> source;
  if (!accepted([&] { source = open_token_source(path, vocabulary); })) return;
  require(source->size() > 0, "a source holds a token");
  const std::int64_t largest = source->largest_token(source->size());
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(source->size()));
  if (!accepted([&] { source->read(0, tokens); })) return;
  require(*std::ranges::max_element(tokens) == largest && largest < vocabulary,
          "tokens are below the size of the vocabulary");
}

}  // namespace trident::fuzzing
