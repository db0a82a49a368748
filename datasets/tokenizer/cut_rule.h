// Finds places where a text may be split so that its parts, encoded separately, have the same ids
// as the complete text. A split point is a single space or line end after a letter or a printable
// ASCII character, and before a letter. It is used only if no step of the tokenizer looks or joins
// across it. A tokenizer with a step for which this isn't certain has no split points. Read-only
// after construction.
#pragma once

#include <cstddef>
#include <string_view>

#include "datasets/tokenizer/added_tokens.h"
#include "datasets/tokenizer/json_part.h"
#include "datasets/tokenizer/model.h"
#include "datasets/tokenizer/normalizer.h"

namespace trident {

class SplitPoints {
 public:
  SplitPoints() = default;
  // `root` is the complete tokenizer.json; the other arguments were read from it.
  SplitPoints(const JsonPart& root, const Normalizers& normalizers, const TokenizerModel& model,
              const AddedTokens& added, CodePointClasses& classes);

  // Returns the first split point after `from` and before the end; npos if there is none.
  std::size_t next(std::string_view text, std::size_t from, const Normalizers& normalizers,
                   CodePointClasses& classes) const;

 private:
  bool before_space_ = false, before_line_end_ = false, after_line_end_ = false;
};

}  // namespace trident
