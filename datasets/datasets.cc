#include "datasets/datasets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/files/json.h"
#include "base/printable.h"

namespace trident {
namespace {

using Sources = std::vector<std::shared_ptr<const TokenSource>>;

class Builder {
 public:
  explicit Builder(const DataSpec& spec) : spec_(spec), texts_(spec.texts) {
    if (!spec.texts.encoder) return;
    texts_.encoder = [this] { return encoder(); };
  }
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  // Opens the sources of one list. Collects the problems; a list with a problem gives no dataset.
  Sources open(const std::vector<SourceSpec>& specs, const std::string& place) {
    Sources sources;
    if (specs.empty()) problems_.push_back(fmt::format("config: {}: names no source", place));
    for (std::size_t i = 0; i < specs.size(); ++i) {
      collect(fmt::format("{}/{}/path", place, i), [&] {
        std::unique_ptr<TokenSource> source =
            texts_.encoder ? open_token_source(specs[i].path, spec_.vocab_size, texts_)
                           : open_token_source(specs[i].path, spec_.vocab_size);
        if (source == nullptr) untokenized.push_back(specs[i].path);
        sources.push_back(std::move(source));
      });
      if (sources.size() == i + 1 && sources[i] != nullptr && !spec_.vocab_size_given) {
        need_vocab_size(*sources[i]);
      }
    }
    return sources;
  }

  // A .bin/.idx pair doesn't say how many ids its tokenizer has. Reports one problem at most.
  void need_vocab_size(const TokenSource& source) {
    if (!source.contents().empty()) return;  // made by the run's tokenizer, checked in encoder()
    const std::int64_t largest = source.largest_token(std::int64_t{1} << 28);
    if (largest < 0 || vocab_size_missed_) return;
    vocab_size_missed_ = true;
    problems_.push_back(
        fmt::format("config: /model/vocab_size: must be given for tokens: the number of ids of the "
                    "tokenizer that made them; {} has ids up to {}, so at least {}",
                    source.path(), largest, largest + 1));
  }

  // A dataset of the split's part `which` (0 training, 1 validation, 2 test) of each source, or of
  // each complete source (-1).
  std::shared_ptr<const Dataset> dataset(const Sources& sources,
                                         const std::vector<SourceSpec>& specs, int which,
                                         const std::string& place, const std::string& name) {
    const bool all = std::ranges::all_of(sources, [](const auto& s) { return s != nullptr; });
    if (sources.empty() || sources.size() != specs.size() || !all) return nullptr;
    std::vector<DataPart> parts;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const std::int64_t n = sources[i]->size();
      const auto edges = split_edges(n, spec_.split);
      const std::int64_t begins[] = {0, 0, edges[0], edges[1]}, ends[] = {n, edges[0], edges[1], n};
      parts.push_back({sources[i], begins[which + 1], ends[which + 1], specs[i].weight});
    }
    std::shared_ptr<const Dataset> result;
    DocumentBorders borders = spec_.documents;
    collect(place, [&] {
      const bool named =
          std::ranges::all_of(sources, [](const auto& s) { return s->has_documents(); });
      if (borders.are_needed() && !named && texts_.encoder) {
        // The byte tokenizer's end of document is an ordinary line end.
        const DocumentEncoder known = texts_.encoder();
        if (known.tokenizer) borders.eod = known.end_of_document;
      }
      result = std::make_shared<Dataset>(std::move(parts), spec_.sequence_length,
                                         SampleOrder{spec_.shuffle, spec_.seed, name}, borders);
    });
    return result;
  }

  template <class Work>
  void collect(const std::string& place, Work work) {
    try {
      work();
    } catch (const RequestError& error) {
      for (const auto& problem : error.problems()) {
        problems_.push_back(printable(fmt::format("config: {}: {}", place, problem), 2000));
      }
    } catch (const NoEncoder&) {
      // encoder() has collected the problem.
    }
  }

  void finish() {
    if (!problems_.empty()) throw RequestError(problems_);
  }

  std::vector<std::string> untokenized;

 private:
  struct NoEncoder {};

  // All sources share the tokenizer, so its problems are collected once.
  DocumentEncoder encoder() {
    if (no_encoder_) throw NoEncoder();
    try {
      DocumentEncoder encoder = spec_.texts.encoder();
      if (!encoder.tokenizer || encoder.vocab_size() <= spec_.vocab_size) return encoder;
      problems_.push_back(
          fmt::format("config: /model/vocab_size: is {}, but the tokenizer has {} ids; use {}",
                      spec_.vocab_size, encoder.vocab_size(), encoder.vocab_size()));
    } catch (const RequestError& error) {
      for (const auto& problem : error.problems()) problems_.push_back(printable(problem, 2000));
    }
    no_encoder_ = true;
    throw NoEncoder();
  }

  const DataSpec& spec_;
  TextAccess texts_;
  bool no_encoder_ = false;
  std::vector<std::string> problems_;
  bool vocab_size_missed_ = false;
};

}  // namespace

std::array<std::int64_t, 2> split_edges(std::int64_t tokens, const std::array<double, 3>& split) {
  const double sum = split[0] + split[1] + split[2];
  for (const double share : split) {
    if (!(share >= 0) || !(sum > 0) || !std::isfinite(sum)) {
      throw RequestError(fmt::format("split {},{},{}: needs three numbers >= 0, not all 0",
                                     split[0], split[1], split[2]));
    }
  }
  const auto n = static_cast<double>(tokens);
  return {std::llround(split[0] / sum * n), std::llround((split[0] + split[1]) / sum * n)};
}

Datasets build_datasets(const DataSpec& spec) {
  Builder builder(spec);
  builder.collect("/data/split", [&] { split_edges(0, spec.split); });
  builder.finish();
  Datasets result;
  const Sources train = builder.open(spec.train, "/data/train");
  result.train = builder.dataset(train, spec.train, 0, "/data/train", "train");
  if (spec.split[1] > 0) {
    if (!spec.validation.empty()) {
      throw RequestError(
          "config: /data/split: gives a validation part, and /data/validation "
          "names sources too; use one of the two");
    }
    result.validation.emplace_back(
        "", builder.dataset(train, spec.train, 1, "/data/split", "validation/"));
  }
  if (spec.test && spec.split[2] > 0) {
    result.test.emplace_back("", builder.dataset(train, spec.train, 2, "/data/split", "test/"));
  }
  for (const auto& set : spec.validation) {
    const std::string place =
        set.name.empty() ? "/data/validation" : json_pointer_append("/data/validation", set.name);
    const Sources sources = builder.open(set.sources, place);
    result.validation.emplace_back(
        set.name, builder.dataset(sources, set.sources, -1, place, "validation/" + set.name));
  }
  builder.finish();
  if (builder.untokenized.empty()) return result;
  return {.untokenized = std::move(builder.untokenized)};
}

}  // namespace trident
