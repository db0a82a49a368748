// Where a text may be cut so that its parts, encoded apart, have the ids of the whole: one space or
// line end between a letter or other character of ASCII and a letter, where a tokenizer's parts are
// such that nothing looks or joins across it. What can't be told for certain is no such place.
#pragma once

#include <cstddef>
#include <string_view>

#include "datasets/tokenizer/added_tokens.h"
#include "datasets/tokenizer/json_part.h"
#include "datasets/tokenizer/model.h"
#include "datasets/tokenizer/normalizer.h"

namespace trident {

class CutRule {
 public:
  CutRule() = default;
  // Of the whole tokenizer.json, whose parts have been read.
  CutRule(const JsonPart& root, const Normalizers& normalizers, const TokenizerModel& model,
          const AddedTokens& added, CodePointClasses& classes);

  // The first such place beyond `from` and before the end; npos where there is none.
  std::size_t next(std::string_view text, std::size_t from, const Normalizers& normalizers,
                   CodePointClasses& classes) const;

 private:
  bool before_space_ = false, before_line_end_ = false, after_line_end_ = false;
};

}  // namespace trident
