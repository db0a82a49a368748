#include "base/printable.h"

#include <gtest/gtest.h>

namespace trident {
namespace {

TEST(Printable, PrintableTextStays) {
  EXPECT_EQ(printable("h.0.attn \"Größe\" 日本 🙂 \\"),
            "h.0.attn \"Größe\" 日本 🙂 \\");
  EXPECT_EQ(printable(""), "");
}

TEST(Printable, ControlCharactersAreEscaped) {
  EXPECT_EQ(printable("a\x1b[31mb"), "a\\x1b[31mb");
  EXPECT_EQ(printable("a\nb\tc\rd\x7f"), "a\\nb\\tc\\x0dd\\x7f");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            "\\u{009b}2J")
      << "CSI in one character (C1)";
  EXPECT_EQ(printable("a\xe2\x80\xae"
                      "b"),
            "a\\u{202e}b")
      << "reverses the direction of the text";
}

TEST(Printable, BytesThatAreNoUtf8AreEscaped) {
  EXPECT_EQ(printable("a\xff"
                      "b"),
            "a\\xffb");
  EXPECT_EQ(printable("\xc3"), "\\xc3") << "cut off";
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf") << "longer than it has to be";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a pair";
  EXPECT_EQ(printable("\xf5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80") << "beyond U+10FFFF";
}

TEST(Printable, LongTextIsTruncatedBetweenCharacters) {
  EXPECT_EQ(printable("abcdef", 3), "abc...");
  EXPECT_EQ(printable("ééé", 5), "éé...");
  EXPECT_EQ(printable("abc", 3), "abc");
}

TEST(Printable, AMessageKeepsItsLines) {
  const std::string line(1000, 'x');
  EXPECT_EQ(printable_lines(line + "\n\x1b" + line), line + "\n\\x1b" + line);
}

}  // namespace
}  // namespace trident
