#include "base/utf8.h"

#include <gtest/gtest.h>

namespace trident {
namespace {

constexpr const char* kReplacement = "\xef\xbf\xbd";

TEST(Utf8, AcceptsValidText) {
  for (const char* text : {"", "plain", "é ж 中 🙂", "\x7f", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xf4\x8f\xbf\xbf", "eight bytes of ASCII, then é"}) {
    EXPECT_EQ(invalid_utf8(text), std::string_view::npos) << text;
    EXPECT_EQ(replace_invalid_utf8(text), text);
  }
  EXPECT_EQ(invalid_utf8(std::string_view("\0\0", 2)), std::string_view::npos);
}

// The rule is that of Python's bytes.decode("utf-8", errors="replace"), which follows Unicode 15,
// chapter 3.9.
TEST(Utf8, ReplacesMaximalParts) {
  struct Case {
    std::string_view text;
    std::size_t at;
    int replaced;
  };
  for (const Case& c :
       {Case{"\x80", 0, 1}, Case{"\xc0\xaf", 0, 2}, Case{"\xe0\x80\xaf", 0, 3},
        Case{"\xe2\x82", 0, 1}, Case{"\xf0\x9f\x99", 0, 1}, Case{"\xed\xa0\x80", 0, 3},
        Case{"\xf4\x90\x80\x80", 0, 4}, Case{"\xf0\x80\x80\x41", 0, 3}, Case{"\xc3", 0, 1},
        Case{"\xff\xfe", 0, 2}}) {
    const std::string text = "long enough: é" + std::string(c.text) + "z";
    EXPECT_EQ(invalid_utf8(text), 15u);
    std::string expected = "long enough: é";
    const bool ends_in_ascii = c.text.back() == 'A';
    for (int i = 0; i < c.replaced; ++i) expected += kReplacement;
    EXPECT_EQ(replace_invalid_utf8(text), expected + (ends_in_ascii ? "A" : "") + "z");
  }
}

TEST(Utf8, ReadsBackEachCodePointThatItWrites) {
  for (char32_t code = 0; code < 0x110000; code += code < 0x1000 ? 1 : 97) {
    if (code >= 0xd800 && code < 0xe000) continue;
    std::string text;
    append_utf8(text, code);
    const CodePoint first = first_code_point(text);
    EXPECT_TRUE(first.valid);
    EXPECT_EQ(first.code, code);
    EXPECT_EQ(first.bytes, text.size());
    EXPECT_EQ(code_point_before("a" + text, text.size() + 1), 1u);
  }
}

}  // namespace
}  // namespace trident
