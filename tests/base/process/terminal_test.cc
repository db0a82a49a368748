#include "base/process/terminal.h"

#include <gtest/gtest.h>

namespace trident::testing {
namespace {

TEST(Wrapped, BreaksBetweenWordsAndKeepsTheRest) {
  EXPECT_EQ(wrapped("one two three\n", 80, 2), "one two three\n");
  EXPECT_EQ(wrapped("one two three\n", 0, 2), "one two three\n");
  EXPECT_EQ(wrapped("one two three four\n\nlast", 9, 2), "one two\n  three\n  four\n\nlast");
  EXPECT_EQ(wrapped("a  b   c", 80, 2), "a  b   c") << "columns stay where a line fits";
  EXPECT_EQ(wrapped("short averylongword x", 6, 1), "short\n averylongword\n x");
  EXPECT_EQ(wrapped("äö üß", 5, 0), "äö üß") << "letters, not bytes";
  EXPECT_EQ(wrapped("", 5, 0), "");
}

TEST(Columns, AreCodePoints) {
  EXPECT_EQ(columns_of("a×b…"), 4);
}

TEST(Terminal, OfAFileIsNone) {
  const Terminal none = terminal_of(-1);
  EXPECT_FALSE(none.live);
  EXPECT_FALSE(none.colour);
  EXPECT_EQ(none.columns, 0);
}

}  // namespace
}  // namespace trident::testing
