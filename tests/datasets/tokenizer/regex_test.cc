#include "datasets/tokenizer/regex.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <regex.h>

#include "base/error.h"

namespace trident {
namespace {

// Oniguruma's library defines functions of these names, which work on another regex_t.
TEST(Regex, LeavesTheCLibrarysRegcompInPlace) {
  for (void* function : {reinterpret_cast<void*>(&::regcomp), reinterpret_cast<void*>(&::regexec),
                         reinterpret_cast<void*>(&::regfree)}) {
    Dl_info info{};
    ASSERT_NE(::dladdr(function, &info), 0);
    EXPECT_THAT(info.dli_fname, ::testing::Not(::testing::HasSubstr("onig")));
  }
}

TEST(Regex, FindsMatchesFromLeftToRight) {
  std::vector<TextRange> found;
  Regex("a|").find("xaay", found);
  EXPECT_THAT(found, ::testing::ElementsAre(TextRange{0, 0}, TextRange{1, 2}, TextRange{2, 3},
                                            TextRange{4, 4}));
  Regex("é+").find("aéé é", found);
  EXPECT_THAT(found, ::testing::ElementsAre(TextRange{1, 5}, TextRange{6, 8}));
  EXPECT_THROW(Regex("("), RequestError);
}

}  // namespace
}  // namespace trident
