#include "formats/hugging_face/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/files/bytes.h"
#include "support/full_disk.h"
#include "support/temp_dir.h"

namespace trident {
namespace {

using ::testing::ElementsAre;
using testing::FullDisk;
using ::testing::HasSubstr;
using testing::message_of;
using testing::slurp;
using testing::spit;
using testing::TempDir;

// A file with this header and `data_bytes` zeros.
std::string file_of(std::string_view header, std::size_t data_bytes) {
  std::array<std::byte, 8> length;
  store_little_endian<std::uint64_t>(header.size(), length.data());
  return std::string(reinterpret_cast<const char*>(length.data()), 8) + std::string(header) +
         std::string(data_bytes, '\0');
}

std::vector<float> ramp(std::size_t count, float first = 0) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

class Safetensors : public ::testing::Test {
 protected:
  // The error of opening a file with this header.
  std::string rejects(std::string_view header, std::size_t data_bytes) {
    return rejects_file(file_of(header, data_bytes));
  }
  std::string rejects_file(const std::string& contents) {
    spit(dir_ / "bad", contents);
    return message_of<RequestError>([&] { SafetensorsFile(dir_ / "bad"); });
  }
  TempDir dir_;
};

TEST_F(Safetensors, RowsWrittenInAnyOrderReadBackByTensorAndByRows) {
  SafetensorsWriter writer(dir_ / "m",
                           {{"half", DType::bf16, {3}},
                            {"w", DType::f32, {4, 2, 3}},
                            {"scalar", DType::i64, {}},
                            {"none", DType::u8, {0, 7}}},
                           {{"format", "pt"}, {"note", "caf\u00e9 \"q\"\n"}});
  const auto w = ramp(24);
  // A row is a line of the last dimension.
  writer.write_rows("w", 6, 2, bytes_of(w).subspan(3 * 24));
  writer.write("half", bytes_of(std::vector<std::uint16_t>{1, 2, 3}));
  writer.write("scalar", bytes_of(std::vector<std::int64_t>{-5}));
  writer.write_rows("w", 0, 4, bytes_of(w).first(2 * 24));
  EXPECT_THAT(dir_.names(), ::testing::Not(::testing::Contains("m")));
  writer.write_rows("w", 4, 2, bytes_of(w).subspan(2 * 24, 24));
  writer.finish();
  EXPECT_THAT(dir_.names(), ElementsAre("m"));

  const SafetensorsFile file(dir_ / "m");
  EXPECT_EQ(file.metadata().at("note"), "caf\u00e9 \"q\"\n");
  EXPECT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.at("w").dtype, DType::f32);
  EXPECT_THAT(file.at("w").shape, ElementsAre(4, 2, 3));
  std::vector<float> full(24);
  file.read(file.at("w"), std::as_writable_bytes(std::span(full)));
  EXPECT_EQ(full, w);
  std::vector<float> rows(12);
  file.read_rows(file.at("w"), 2, 4, std::as_writable_bytes(std::span(rows)));
  EXPECT_EQ(rows, ramp(12, 6));
  std::int64_t scalar = 0;
  file.read(file.at("scalar"), std::as_writable_bytes(std::span(&scalar, 1)));
  EXPECT_EQ(scalar, -5);
  file.read(file.at("none"), {});
  // The tensor is aligned to its elements, wherever it was declared.
  for (const auto& entry : file.tensors()) {
    EXPECT_EQ(entry.begin % size_of(*entry.dtype), 0u) << entry.name;
  }
}

TEST_F(Safetensors, ReadingBeyondATensorOrIntoAWrongBufferIsAnError) {
  spit(dir_ / "m", file_of(R"({"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                           R"("b":{"dtype":"BOOL","shape":[3],"data_offsets":[16,19]}})",
                           19));
  const SafetensorsFile file(dir_ / "m");
  std::array<std::byte, 16> out;
  EXPECT_THROW(file.read_rows(file.at("w"), 1, 2, out), Error);
  EXPECT_THROW(file.read_rows(file.at("w"), -1, 2, out), Error);
  EXPECT_THROW(file.read(file.at("w"), std::span(out).first(8)), Error);
  EXPECT_THAT(message_of<RequestError>([&] { file.at("v"); }), HasSubstr("no tensor \"v\""));
  // An unsupported type is an error only when its tensor is read.
  EXPECT_THAT(message_of<RequestError>([&] { file.read(file.at("b"), std::span(out).first(3)); }),
              HasSubstr("\"b\" has dtype BOOL, which Trident doesn't read"));
}

// Headers of files with 4 bytes of data, and a part of each one's error.
constexpr std::pair<const char*, const char*> hostile_headers[] = {
    {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
     R"("a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
     "duplicate key \"a\""},
    {R"({"a":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
     "duplicate key \"a\".\"dtype\""},
    {R"({"__metadata__":{"k":"1","k":"2"},"a":{"dtype":"U8","shape":[4],)"
     R"("data_offsets":[0,4]}})",
     "duplicate key \"__metadata__\".\"k\""},
    {R"({"__metadata__":{"k":1},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
     "needs a string"},
    {R"({"__metadata__":["k"]})", "is an array, needs an object"},
    {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
     R"("b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})",
     "a hole"},
    {R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
     R"("b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
     "an overlap"},
    {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})", "must rise"},
    {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,5]}})", "within the 4 bytes"},
    {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4,4]}})", "needs two numbers"},
    {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,18446744073709551615]}})", "beyond 2^63"},
    {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,4]}})", "needs 16 bytes"},
    {R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,4]}})",
     "more than 2^64"},
    {R"({"a":{"dtype":"U8","shape":[4611686018427387905,4],"data_offsets":[0,4]}})",
     "more than 2^64"},
    {R"({"a":{"dtype":"U8","shape":[-4],"data_offsets":[0,4]}})", "a negative number"},
    {R"({"a":{"dtype":"U8","shape":[4.0],"data_offsets":[0,4]}})", "a fraction"},
    {R"({"a":{"dtype":"U8","shape":[[4]],"data_offsets":[0,4]}})", "an array"},
    {R"({"a":{"dtype":"U8","shape":4,"data_offsets":[0,4]}})", "a number"},
    {R"({"a":{"dtype":"Q4","shape":[4],"data_offsets":[0,4]}})", "unknown dtype \"Q4\""},
    {R"({"a":{"dtype":"U8","shape":[4]}})", "lacks data_offsets"},
    {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"x":"y"}})", "unknown key"},
    {R"({"a":null})", "needs an object"},
    {"{\"a\xff\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", "not JSON"},
};

TEST_F(Safetensors, HostileHeadersAreRefusedWithTheReason) {
  const std::string good = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  ASSERT_EQ(rejects(good, 4), "");
  EXPECT_THAT(rejects(good, 5), HasSubstr("the tensors end at byte 4 of the data, the file at 5"));
  EXPECT_THAT(rejects(good, 3), HasSubstr("within the 3 bytes"));
  EXPECT_THAT(rejects(" " + good, 4), HasSubstr("must begin with '{'"));
  EXPECT_THAT(rejects("", 0), HasSubstr("must begin with '{'"));
  EXPECT_THAT(rejects(good.substr(0, good.size() - 1), 4), HasSubstr("not JSON"));
  EXPECT_THAT(rejects(good + "x", 4), HasSubstr("not JSON"));
  EXPECT_THAT(rejects_file("short"), HasSubstr("8-byte length"));
  EXPECT_THAT(rejects_file(file_of(good, 4).substr(0, 20)), HasSubstr("beyond the limit"));
  EXPECT_THAT(rejects_file(std::string(8, '\xff') + good), HasSubstr("beyond the limit"));
  EXPECT_THAT(rejects_file(std::string("\x01\xe1\xf5\x05\0\0\0\0", 8) + good),
              HasSubstr("header length 100000001"));

  for (const auto& [header, rule] : hostile_headers) {
    EXPECT_THAT(rejects(header, 4), HasSubstr(rule)) << header;
  }
  EXPECT_THAT(rejects("{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}", 4),
              HasSubstr("needs an object"));
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  EXPECT_THAT(rejects(deep + "1" + std::string(100000, '}'), 4),
              HasSubstr("unknown key \"a\".\"a\""));
}

TEST_F(Safetensors, RandomDamageToAFileIsRefusedOrReadButNeverCrashes) {
  {
    SafetensorsWriter writer(
        dir_ / "m", {{"layer.weight", DType::f32, {5, 3}}, {"layer.bias", DType::bf16, {5}}},
        {{"format", "pt"}});
    writer.write("layer.weight", bytes_of(ramp(15)));
    writer.write("layer.bias", bytes_of(std::vector<std::uint16_t>(5)));
    writer.finish();
  }
  const std::string good = slurp(dir_ / "m");
  std::mt19937 random(7);
  int accepted = 0, refused = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    std::string bad = good;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
      const std::size_t at = random() % bad.size();
      switch (random() % 4) {
        case 0:
          bad[at] = static_cast<char>(random());
          break;
        case 1:
          bad[at] = "0123456789{}[]\",:"[random() % 17];
          break;
        case 2:
          bad.erase(at, random() % 8);
          break;
        default:
          bad.insert(at, bad.substr(random() % bad.size(), random() % 8));
      }
    }
    spit(dir_ / "bad", bad);
    try {
      const SafetensorsFile file(dir_ / "bad");
      for (const auto& entry : file.tensors()) {
        std::vector<std::byte> out(entry.bytes());
        if (entry.dtype) file.read(entry, out);
      }
      ++accepted;
    } catch (const RequestError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 2000);
  EXPECT_GT(accepted, 100);  // damage in the data or in a name
}

TEST_F(Safetensors, EveryTruncationIsRefused) {
  {
    SafetensorsWriter writer(dir_ / "m", {{"w", DType::f32, {8}}});
    writer.write("w", bytes_of(ramp(8)));
    writer.finish();
  }
  const std::string good = slurp(dir_ / "m");
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_NE(rejects_file(good.substr(0, size)), "") << size;
  }
}

TEST_F(Safetensors, AnIncompleteOrFailedWriteLeavesTheOldFile) {
  spit(dir_ / "m", "old");
  {
    SafetensorsWriter writer(dir_ / "m", {{"w", DType::f32, {4, 2}}});
    EXPECT_THROW(writer.write_rows("w", 3, 2, bytes_of(ramp(4))), Error);
    EXPECT_THROW(writer.write_rows("w", 0, 2, bytes_of(ramp(3))), Error);
    EXPECT_THROW(writer.write("v", bytes_of(ramp(8))), Error);
    writer.write_rows("w", 0, 2, bytes_of(ramp(4)));
    EXPECT_THAT(message_of<Error>([&] { writer.write_rows("w", 1, 1, bytes_of(ramp(2))); }),
                HasSubstr("rows 1 to 2 are written twice"));
    EXPECT_THAT(message_of<Error>([&] { writer.finish(); }),
                HasSubstr("\"w\": row 2 of 4 was never written"));
  }
  {
    const FullDisk full(4096);
    EXPECT_THAT(message_of<Error>([&] {
                  SafetensorsWriter writer(dir_ / "m", {{"w", DType::f32, {4000}}});
                  writer.write("w", bytes_of(ramp(4000)));
                }),
                HasSubstr("writing 16000 bytes"));
  }
  EXPECT_EQ(slurp(dir_ / "m"), "old");
  EXPECT_THAT(dir_.names(), ElementsAre("m"));
  EXPECT_THROW(SafetensorsWriter(dir_ / "x", {{"w", DType::f32, {1}}, {"w", DType::f32, {1}}}),
               Error);
  EXPECT_THROW(SafetensorsWriter(dir_ / "none/x", {{"w", DType::f32, {1}}}), Error);
}

TEST_F(Safetensors, ThreadsMayFillOneTensorTogether) {
  constexpr int kRows = 400;
  SafetensorsWriter writer(dir_ / "m", {{"w", DType::f32, {kRows, 2}}});
  const auto values = ramp(2 * kRows);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int row = t; row < kRows; row += 4) {
        writer.write_rows("w", row, 1, bytes_of(values).subspan(row * 8, 8));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  writer.finish();
  const SafetensorsFile file(dir_ / "m");
  std::vector<float> back(2 * kRows);
  file.read(file.at("w"), std::as_writable_bytes(std::span(back)));
  EXPECT_EQ(back, values);
}

TEST_F(Safetensors, ASetIsOneFileOrShards) {
  const std::vector<TensorDeclaration> tensors = {
      {"a", DType::f32, {4}}, {"b", DType::f32, {4}}, {"c", DType::f32, {2}}};
  for (const std::uint64_t limit : {1000, 24, 16}) {
    const TempDir dir;
    SafetensorsSetWriter writer(dir.path(), tensors, limit);
    writer.write("c", bytes_of(ramp(2, 20)));
    writer.write_rows("b", 0, 4, bytes_of(ramp(4, 10)));
    EXPECT_THROW(writer.finish(), Error);  // "a" is missing
    writer.write("a", bytes_of(ramp(4, static_cast<float>(limit))));
    writer.finish();
    const SafetensorsSet set(dir.path());
    EXPECT_EQ(set.tensors().size(), 3u);
    std::vector<float> a(4), row(1);
    set.read("a", std::as_writable_bytes(std::span(a)));
    EXPECT_EQ(a, ramp(4, static_cast<float>(limit)));
    set.read_rows("b", 2, 1, std::as_writable_bytes(std::span(row)));
    EXPECT_EQ(row[0], 12);
    EXPECT_EQ(set.find("d"), nullptr);
    if (limit == 1000) {
      EXPECT_THAT(dir.names(), ElementsAre("model.safetensors"));
    } else if (limit == 16) {
      EXPECT_THAT(
          dir.names(),
          ElementsAre("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                      "model-00003-of-00003.safetensors", "model.safetensors.index.json"));
      EXPECT_THAT(set.file_of("b"), HasSubstr("model-00002-of-00003"));
    }
  }
}

TEST_F(Safetensors, ABrokenIndexIsRefused) {
  EXPECT_THAT(message_of<RequestError>([&] { SafetensorsSet(dir_.path()); }),
              HasSubstr("holds neither model.safetensors nor"));
  spit(dir_ / "s.safetensors",
       file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4));
  for (const auto& [index, rule] : std::vector<std::pair<const char*, const char*>>{
           {R"({"weight_map":{"a":"s.safetensors"}})", ""},
           {R"({"weight_map":{"b":"s.safetensors"}})", "no tensor \"b\""},
           {R"({"weight_map":{"a":"../s.safetensors"}})", "the name of a file beside it"},
           {R"({"weight_map":{"a":"/etc/passwd"}})", "the name of a file beside it"},
           {R"({"weight_map":{"a":1}})", "the name of a file beside it"},
           {R"({"weight_map":{"a":"t.safetensors"}})", "can't open"},
           {R"({"weight_map":{"a":".."}})", "the name of a file beside it"},
           {R"({"weight_map":["a"]})", "needs an object"},
           {R"({"weight_map":{"a":"s.safetensors","a":"s.safetensors"}})", "a"},
           {R"({)", "model.safetensors.index.json"},
       }) {
    spit(dir_ / "model.safetensors.index.json", index);
    const auto message = message_of<RequestError>([&] { SafetensorsSet(dir_.path()); });
    EXPECT_THAT(message, HasSubstr(rule)) << index;
    EXPECT_EQ(message.empty(), std::string_view(rule).empty()) << index;
  }
}

}  // namespace
}  // namespace trident
