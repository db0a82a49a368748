#include "datasets/tokenizer_training.h"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "datasets/tokenizer/byte_level_file.h"
#include "datasets/tokenizer/regex.h"
#include "datasets/tokenizer/tokenizer.h"

namespace trident {
namespace {

class Problems {
 public:
  void add(const std::string& problem) { problems_.push_back(problem); }
  template <class Work>
  void collect(const std::string& place, Work work) {
    try {
      work();
    } catch (const RequestError& error) {
      for (const std::string& problem : error.problems()) add(place + problem);
    }
  }
  void refuse() const {
    if (!problems_.empty()) throw RequestError(problems_);
  }

 private:
  std::vector<std::string> problems_;
};

void add_files(const std::string& path, const TokenizerTraining& request,
               std::vector<SourceFile>& files) {
  const SourceFiles found = find_source_files(path);
  if (!found.pairs.empty()) {
    throw RequestError(
        fmt::format("{}: is a .bin/.idx pair, already tokenized; a tokenizer is trained on texts",
                    found.pairs[0]));
  }
  if (!found.left.empty() && request.report) {
    request.report(fmt::format(
        "{}: {} of its files are texts; left out: {}{}", path, found.files.size(), found.left[0],
        found.left.size() > 1 ? fmt::format(" and {} more", found.left.size() - 1) : ""));
  }
  files.insert(files.end(), found.files.begin(), found.files.end());
}

// A tokenizer without merges, which splits texts as the trained tokenizer will.
std::shared_ptr<const Tokenizer> untrained(const TokenizerTraining& request) {
  BpeTraining bytes = request.bpe;
  bytes.progress = nullptr;
  return std::make_shared<Tokenizer>(
      byte_level_tokenizer_file(train_bpe({}, bytes), bytes.special_tokens, request.pattern), "");
}

}  // namespace

TrainedTokenizer train_tokenizer(const TokenizerTraining& request) {
  Problems problems;
  std::vector<SourceFile> files;
  for (const std::string& path : request.paths) {
    problems.collect("", [&] { add_files(path, request, files); });
  }
  for (const std::string& token : request.bpe.special_tokens) {
    if (token.empty()) problems.add("--special-tokens: a token can't be empty");
    if (invalid_utf8(token) != std::string::npos) {
      problems.add(fmt::format("--special-tokens: {} isn't UTF-8", printable(token, 60)));
    }
  }
  problems.collect("--vocab-size: ", [&] { train_bpe({}, request.bpe); });
  problems.collect("--pattern: ", [&] { Regex{request.pattern}; });
  problems.refuse();

  const DocumentEncoder encoder{.tokenizer = untrained(request),
                                .replace_errors = request.replace_errors,
                                .json_key = request.json_key};
  CountedWords counted = count_words(files, encoder, request.counting);
  TrainedTokenizer result{.text_bytes = counted.text_bytes,
                          .words = counted.total,
                          .distinct_words = counted.words.words().size(),
                          .left_out = counted.left_out};
  if (counted.total == 0) throw RequestError("the texts contain no words");
  const TrainedBpe trained = train_bpe(std::move(counted.words), request.bpe);
  result.vocab_size = static_cast<std::int64_t>(trained.tokens.size());
  result.merges = static_cast<std::int64_t>(trained.merges.size());
  result.text = byte_level_tokenizer_file(trained, request.bpe.special_tokens, request.pattern);
  return result;
}

}  // namespace trident
