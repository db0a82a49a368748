// Files of texts. The first byte gives the kind of file. An accepted file has the tokens of its
// documents, each with an end token.
#include "base/utf8.h"
#include "datasets/indexed_source.h"
#include "datasets/tokenize.h"
#include "fuzz/fuzzing.h"
#include "support/temp_dir.h"

namespace trident::fuzzing {

void fuzz_documents(std::string_view input) {
  if (input.empty()) return;
  constexpr const char* kinds[] = {".txt", ".jsonl", ".jsonl.gz", ".jsonl.zst", ".txt.gz", ".zst"};
  const std::string folder = empty_folder();
  const std::string path =
      folder + "/documents" + kinds[static_cast<unsigned char>(input[0]) % std::size(kinds)];
  input.remove_prefix(1);
  testing::spit(path, input);
  DocumentEncoder encoder{.end_of_document = 2, .replace_errors = input.size() % 2 == 0};
  encoder.tokenizer = std::make_shared<Tokenizer>(
      R"({"model": {"type": "BPE", "vocab": {"u": 0, "a": 1, "e": 2}, "merges": [], "unk_token": "u"}})",
      "tokenizer.json");
  IndexedWriter writer(folder + "/tokens", 3);
  TextMarks marks;
  const bool taken =
      accepted([&] { marks = tokenize({source_file(path)}, encoder, writer, {.threads = 1}); });
  if (!taken || writer.tokens() == 0) return;
  writer.commit();
  const IndexedSource source(folder + "/tokens", 3);
  require(source.size() == writer.tokens(), "all tokens are written");
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(source.size()));
  source.read(0, tokens);
  require(tokens.back() == 2, "the last document is ended");
  if (path.ends_with(".txt")) {
    const auto bytes = static_cast<std::size_t>(marks.list().back().bytes);
    const bool whole = bytes == replace_invalid_utf8(input).size();
    require(whole && writer.documents() == 1, "a text is a document");
  }
}

}  // namespace trident::fuzzing
