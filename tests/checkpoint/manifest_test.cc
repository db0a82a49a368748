#include "checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "base/error.h"
#include "base/files/crc64.h"
#include "checkpoint/saved_parts.h"
#include "core/device.h"
#include "parallel/transport/transport.h"

namespace trident {
namespace {

using ::testing::HasSubstr;

Manifest example() {
  Manifest m;
  m.iteration = 40;
  m.sequence = 4;
  m.run_id = "ab\"12";
  m.made_by = {{"layout", "dp 2 x tp 1 x pp 1"}};
  m.samples = 640;
  m.tokens = 81920;
  m.numbers = {{"optimizer.step", std::int64_t{40}}, {"loss_scale.value", 65536.0}, {"x", 0.1}};
  m.files["model.safetensors"] = {checkpoint_block + 5, {1, 2}};
  m.files["trident/state-00001-of-00001.safetensors"] = {100, {0xfedcba9876543210}};
  m.tensors["weight/a"] = {DType::bf16, {4, 6}, {{"model.safetensors", "a", {0, 0, 4, 6}, true}}};
  m.tensors["exp_avg/a"] = {DType::f32,
                            {4, 6},
                            {{"trident/state-00001-of-00001.safetensors", "p", {0, 0, 1, 2}},
                             {"trident/state-00001-of-00001.safetensors", "q", {0, 2, 1, 4}},
                             {"trident/state-00001-of-00001.safetensors", "r", {1, 0, 3, 6}}}};
  return m;
}

std::string message_of(const std::string& text) {
  try {
    parse_manifest(text, "m.json");
  } catch (const RequestError& error) {
    return error.what();
  }
  return "no error";
}

// The text of a changed document, with the root that belongs to it.
std::string sealed(const nlohmann::json& document) {
  std::string text = document.dump();
  text.pop_back();
  return text + ",\n\"root\": \"" + hex64(crc64(text)) + "\"}\n";
}

nlohmann::json document_of(Manifest m) {
  nlohmann::json document = nlohmann::json::parse(manifest_text(m));
  document.erase("root");
  return document;
}

TEST(Manifest, ReadsBackAsItWasWritten) {
  Manifest m = example();
  const std::string text = manifest_text(m);
  const Manifest back = parse_manifest(text, "m.json");
  EXPECT_EQ(back.iteration, 40);
  EXPECT_EQ(back.sequence, 4);
  EXPECT_EQ(back.run_id, m.run_id);
  EXPECT_EQ(back.made_by, m.made_by);
  EXPECT_EQ(back.samples, 640);
  EXPECT_EQ(back.tokens, 81920);
  EXPECT_EQ(back.numbers, m.numbers);
  EXPECT_EQ(back.tensors, m.tensors);
  EXPECT_EQ(back.files, m.files);
  EXPECT_EQ(back.root, m.root);
}

TEST(Manifest, WithAnyByteChangedOrMissingIsRefused) {
  Manifest m = example();
  const std::string text = manifest_text(m);
  for (std::size_t i = 0; i < text.size(); ++i) {
    EXPECT_THROW(parse_manifest(text.substr(0, i), "m.json"), RequestError) << i;
    for (const int flip : {1, 0x20, 0x80, 0xff}) {
      std::string other = text;
      other[i] = static_cast<char>(other[i] ^ flip);
      EXPECT_THROW(parse_manifest(other, "m.json"), RequestError) << i;
    }
  }
  EXPECT_THROW(parse_manifest(text + " ", "m.json"), RequestError);
}

TEST(Manifest, WithoutAKeyNamesIt) {
  const nlohmann::json good = document_of(example());
  EXPECT_EQ(message_of(sealed(good)), "no error");
  for (const auto& [key, value] : good.items()) {
    nlohmann::json other = good;
    other.erase(key);
    EXPECT_THAT(message_of(sealed(other)), HasSubstr("m.json: /" + key)) << key;
  }
  for (const char* path : {"/data/samples", "/data/tokens", "/files/model.safetensors/bytes",
                           "/files/model.safetensors/blocks", "/tensors/weight~1a/dtype",
                           "/tensors/weight~1a/shape", "/tensors/weight~1a/pieces"}) {
    const nlohmann::json::json_pointer at(path);
    nlohmann::json other = good;
    other[at.parent_pointer()].erase(at.back());
    EXPECT_THAT(message_of(sealed(other)), HasSubstr(std::string("m.json: ") + path)) << path;
  }
}

TEST(Manifest, RefusesWrongKeysFilesAndShards) {
  const nlohmann::json good = document_of(example());
  const auto with = [&](const char* path, const nlohmann::json& value) {
    nlohmann::json other = good;
    other[nlohmann::json::json_pointer(path)] = value;
    return message_of(sealed(other));
  };
  EXPECT_THAT(with("/version", 3), HasSubstr("/version: 3 is another format"));
  EXPECT_THAT(with("/format", "x"), HasSubstr("/format"));
  EXPECT_THAT(with("/iteration", -1), HasSubstr("/iteration: needs a whole number"));
  EXPECT_THAT(with("/iteration", 1.5), HasSubstr("/iteration: needs a whole number"));
  EXPECT_THAT(with("/surprise", 1), HasSubstr("/surprise: is no key"));
  EXPECT_THAT(with("/numbers/x", "y"), HasSubstr("/numbers/x: needs a number"));
  EXPECT_THAT(with("/tensors/weight~1a/dtype", "BOOL"), HasSubstr("/dtype: is no type"));
  EXPECT_THAT(with("/tensors/weight~1a/shape", {4, 6, 1}), HasSubstr("/shape: needs one or two"));
  EXPECT_THAT(with("/tensors/weight~1a/shape", {1LL << 40, 1LL << 40}),
              HasSubstr("more elements than memory can hold"));
  EXPECT_THAT(with("/tensors/weight~1a/shape", {0, 1LL << 40}), HasSubstr("/shape/0: is 0"));
  for (const char* path : {"/iteration", "/sequence", "/data/samples", "/data/tokens"}) {
    EXPECT_EQ(with(path, 1LL << 53), "no error");
    EXPECT_THAT(with(path, (1LL << 53) + 1), HasSubstr("needs a whole number from 0 to 2^53"));
  }
  {
    nlohmann::json other = good;
    other["tensors"]["exp_avg/a"]["shape"] = {1, 1LL << 40};
    other["tensors"]["exp_avg/a"]["pieces"] = {{"model.safetensors", "a", 0, 0, 1, 1LL << 40}};
    EXPECT_THAT(message_of(sealed(other)), HasSubstr("/pieces/0: takes 4398046511104 bytes"));
  }
  for (const char* name : {"../x", "/etc/passwd", "a/b", "trident/../x", "trident/", ".", "..", "",
                           "trident/manifest.json", "a\nb"}) {
    nlohmann::json other = good;
    other["files"][name] = {{"bytes", 0}, {"blocks", nlohmann::json::array()}};
    EXPECT_THAT(message_of(sealed(other)), HasSubstr("names no file of the folder")) << name;
  }
  nlohmann::json shard = good["tensors"]["exp_avg/a"]["pieces"];
  const auto shards = [&](const nlohmann::json& list) {
    return with("/tensors/exp_avg~1a/pieces", list);
  };
  nlohmann::json other = shard;
  other.erase(1);
  EXPECT_THAT(shards(other), HasSubstr("pieces hold 20 of 24 elements"));
  other = shard;
  other[1][3] = 1;  // the slices overlap and leave a hole
  EXPECT_THAT(shards(other), HasSubstr("pieces overlap at (0, 1)"));
  other = shard;
  other.push_back(shard[0]);
  EXPECT_THAT(shards(other), HasSubstr("pieces overlap"));
  other = shard;
  other[2][2] = 2;
  EXPECT_THAT(shards(other), HasSubstr("leave the tensor"));
  other = shard;
  other[1][0] = other[0][0];
  other[1][1] = other[0][1];
  EXPECT_THAT(shards(other), HasSubstr("/1/1: names the tensor of another piece"));
  other = shard;
  other[0][0] = "elsewhere";
  EXPECT_THAT(shards(other), HasSubstr("/0/0: names a file that /files doesn't list"));
  EXPECT_THAT(message_of(sealed(good).insert(1, "\"run_id\": \"\",")), HasSubstr("/root"));
}

// A tensor of experts (2, 3, 4), in slices of its six rows.
TEST(Manifest, OnlyTensorsOfMoreThanTwoDimensionsNeedVersionTwo) {
  Manifest m = example();
  EXPECT_EQ(document_of(m)["version"], 1);
  m.tensors["weight/experts"] = {DType::f32,
                                 {2, 3, 4},
                                 {{"model.safetensors", "e0", {0, 0, 5, 4}},
                                  {"model.safetensors", "e1", {5, 0, 1, 3}},
                                  {"model.safetensors", "e2", {5, 3, 1, 1}}}};
  nlohmann::json document = document_of(m);
  EXPECT_EQ(document["version"], 2);
  const Manifest back = parse_manifest(sealed(document), "m.json");
  EXPECT_EQ(back.tensors, m.tensors);
  document["version"] = 1;
  EXPECT_THAT(message_of(sealed(document)),
              HasSubstr("/tensors/weight~1experts/shape: needs one or two extents"));
  document["version"] = 2;
  document["tensors"]["weight/experts"]["shape"] = {2, 2, 4};
  EXPECT_THAT(message_of(sealed(document)), HasSubstr("leave the tensor"));
  document["tensors"]["weight/experts"]["shape"] = {1, 1, 2, 3, 4};
  EXPECT_THAT(message_of(sealed(document)), HasSubstr("needs one to four extents"));
  document["tensors"]["weight/experts"]["shape"] = {1L << 40, 1L << 40, 4};
  EXPECT_THAT(message_of(sealed(document)), HasSubstr("more elements than memory can hold"));
}

// The texts that the ranks of a save exchange become a manifest that reads back: here each of two
// ranks holds one of the experts (2, 3, 4).
TEST(Manifest, SlicesOfThreeDimensionsAreExchanged) {
  const auto device = make_cpu_device();
  run_local(2, {}, [&](Transport& transport) {
    Context context(*device, 1);
    const int rank = transport.world().rank();
    const Placement placement =
        Placement::replicated({2, 3, 4}).shard(0, Group::tensor, {2}, rank, 2);
    std::vector<Slice> own;
    for (const LocalSlice& held : placement.slices()) {
      own.push_back({"exp_avg", "experts", DType::f32, placement.global, held.slice});
    }
    Manifest m = example();
    const auto all = exchanged_slices(context, transport.world(), own);
    ASSERT_EQ(all.size(), 2U);
    for (const auto& slices : all) add_slices(m, slices, "model.safetensors");
    const std::string text = manifest_text(m);
    const SavedTensor saved = parse_manifest(text, "m.json").tensors.at("exp_avg/experts");
    EXPECT_EQ(saved.shape, (Shape{2, 3, 4}));
    ASSERT_EQ(saved.shards.size(), 2U);
    EXPECT_EQ(saved.shards[1].slice, (TensorSlice{3, 0, 3, 4}));
  });
}

// Random guillotine partitions tile the tensor. A slice that is moved by one element breaks the
// tiling.
TEST(Manifest, AcceptsOnlySlicesThatTileTheTensor) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 300; ++trial) {
    const std::int64_t rows = 1 + random() % 12, columns = 1 + random() % 12;
    std::vector<TensorSlice> slices{{0, 0, rows, columns}};
    for (int cut = 0; cut < 6; ++cut) {
      TensorSlice& slice = slices[random() % slices.size()];
      const bool by_row = random() % 2 == 0;
      std::int64_t& extent = by_row ? slice.rows : slice.columns;
      if (extent < 2) continue;
      const std::int64_t at = 1 + random() % (extent - 1);
      TensorSlice rest = slice;
      (by_row ? rest.row : rest.column) += at;
      (by_row ? rest.rows : rest.columns) -= at;
      extent = at;
      slices.push_back(rest);
    }
    Manifest m = example();
    SavedTensor& tensor = m.tensors["exp_avg/a"];
    tensor = {DType::f32, {rows, columns}, {}};
    for (const TensorSlice& slice : slices) {
      const std::string name = "t" + std::to_string(tensor.shards.size());
      tensor.shards.push_back({"model.safetensors", name, slice});
    }
    EXPECT_EQ(message_of(manifest_text(m)), "no error");
    TensorSlice& moved = tensor.shards[random() % tensor.shards.size()].slice;
    if (random() % 2 == 0)
      ++moved.row;
    else
      ++moved.column;
    EXPECT_NE(message_of(manifest_text(m)), "no error");
  }
}

}  // namespace
}  // namespace trident
