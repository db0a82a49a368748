#include "base/files/json.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace trident {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string error_of(const std::string& text) {
  try {
    parse_json(text, "f.json");
  } catch (const RequestError& error) {
    return error.what();
  }
  return "no error";
}

TEST(StrictJson, ReadsADocumentAsTheLibraryDoes) {
  const std::string text =
      R"({"a": [1, -2, 3.5e2, true, null, "x\"é"], "b": {"a": {}, "c": []}, "d": 18446744073709551615})";
  EXPECT_EQ(parse_json(text, "f.json"), nlohmann::json::parse(text));
}

TEST(StrictJson, NamesADuplicateKeyByPathAndPlace) {
  EXPECT_EQ(error_of("{\"a\": 1,\n \"b\": [{\"c/d\": 1, \"c/d\": 2}]}"),
            "f.json:2:19: /b/0/c~1d: this key occurs twice");
  EXPECT_EQ(error_of(R"({"x\"y": 1, "x\"y": 2})"), "f.json:1:13: /x\"y: this key occurs twice");
  EXPECT_EQ(error_of(R"({"a": {"k": 1}, "b": {"k": 1}})"), "no error");
}

TEST(StrictJson, DeepNestingIsAnErrorAndNotACrash) {
  EXPECT_EQ(error_of(std::string(64, '[') + std::string(64, ']')), "no error");
  EXPECT_EQ(error_of(std::string(65, '[') + std::string(65, ']')),
            "f.json:1:65: nested deeper than 64");
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  EXPECT_THAT(error_of(objects), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(error_of(std::string(100000, '[')), HasSubstr("nested deeper than 64"));
}

TEST(StrictJson, RefusesInvalidJsonAndNamesItsPlace) {
  EXPECT_THAT(error_of("{\"a\": 1} x"), StartsWith("f.json:1:10: "));
  EXPECT_THAT(error_of("{\"a\":\n  NaN}"), StartsWith("f.json:2:3: "));
  EXPECT_THAT(error_of("[-Infinity]"), StartsWith("f.json:1:3: "));
  EXPECT_THAT(error_of("[1e999]"), HasSubstr("number overflow"));
  EXPECT_THAT(error_of("[1,]"), StartsWith("f.json:1:4: "));
  EXPECT_THAT(error_of("{\"a\": \"\xff\"}"), HasSubstr("UTF-8"));
  EXPECT_THAT(error_of("{\"a\": 1"), StartsWith("f.json:1:8: "));
  EXPECT_THAT(error_of(""), HasSubstr("unexpected end of input"));
}

}  // namespace
}  // namespace trident
