// Commands on weights as black boxes: generate, eval, export and import.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "datasets/indexed_writer.h"
#include "tests/app/cli.h"

namespace trident::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(CliTest, GeneratesFromTextAndFromIdsAndRefusesWrongPrompts) {
  train_once();
  const Outcome text = run({"generate", "weights", "--prompt", "In", "--tokens", "5"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, StartsWith("In"));
  EXPECT_EQ(text.out.size(), 2u + 5u + 1u);
  const Outcome ids =
      run({"generate", "weights", "--ids", "73,110", "--tokens", "5", "--format", "json"});
  const json tokens = json::parse(ids.out).at("tokens");
  EXPECT_THAT(json::parse(ids.out).at("text").get<std::string>(), StartsWith("In"));
  const Outcome given = run_program(
      {"generate", "weights", "--ids", "-", "--tokens", "5", "--format", "json"},
      {.directory = dir.path(), .launcher = {"sh", "-c", "echo 73 110 | exec \"$@\"", "sh"}});
  EXPECT_EQ(given.out, ids.out) << given.err;
  expect_refused({"generate", "weights", "--ids", "1,x"}, {"--ids: \"x\" is no id"});
  expect_refused({"generate", "weights", "--ids", ""}, {"--ids: needs a value, not \"\""});
  ASSERT_EQ(tokens.size(), 7u);
  EXPECT_EQ(tokens[1], 110);
  EXPECT_EQ(tokens[2], static_cast<unsigned char>(text.out[2])) << "the same prompt and seed";
  expect_refused({"generate", "weights", "--ids", "1,300"},
                 {"the prompt: token 300 is beyond the vocabulary"});
  expect_refused({"generate", "weights"}, {"the prompt is empty"});
  expect_refused({"generate", "nowhere", "--prompt", "x"}, {"nowhere/config.json"});
  expect_refused({"generate", "", "--prompt", "x"}, {"names no directory"});
  const Outcome lines =
      run_program({"generate", "weights", "--tokens", "1", "--format", "json"},
                  {.directory = dir.path(),
                   .launcher = {"sh", "-c", "printf 'a\\r\\nb\\r\\n' | exec \"$@\"", "sh"}});
  EXPECT_EQ(json::parse(lines.out).at("tokens").size(), 5u) << "the last line end is left out";
}

TEST_F(CliTest, EvaluatesARunsHeldOutPartsAndOtherTexts) {
  ASSERT_EQ(run(train({"data.split=8,1,1"})).code, 0);
  const Outcome held_out = run({"eval", "run", "--format", "json"});
  ASSERT_EQ(held_out.code, 0) << held_out.err;
  const json rows = json::parse(held_out.out).at("results");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("part"), "validation");
  EXPECT_EQ(rows[1].at("part"), "test");
  for (const json& row : rows) {
    const double loss = row.at("loss");
    EXPECT_EQ(row.at("bytes"), row.at("tokens"));
    EXPECT_NEAR(row.at("perplexity").get<double>(), std::exp(loss), 1e-9 * std::exp(loss));
    EXPECT_NEAR(row.at("bits_per_byte").get<double>(), loss / std::log(2.0), 1e-12);
  }
  const Outcome table = run({"eval", "weights", "--data", "text.txt", "text.txt"});
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("\nall sources"));
  const Outcome layout = run({"eval", "weights", "--data", "text.txt", "text.txt", "--set",
                              "parallel.pipeline_model_parallel_size=2", "--ranks", "4"});
  EXPECT_EQ(layout.out, table.out);
  spit(dir / "[text.txt]", "another text, which is as long as a sample");
  for (const bool joined : {false, true}) {  // brackets don't make a list
    const Outcome named = run(
        joined ? std::vector<std::string>{"eval", "weights", "--data=[text.txt]"}
               : std::vector<std::string>{"eval", "weights", "--data", "text.txt", "[text.txt]"});
    ASSERT_EQ(named.code, 0) << named.err;
    EXPECT_THAT(named.out, HasSubstr("\n./[text.txt]"));
  }
  spit(dir / "text.jsonl", "{\"text\": \"one\"}\n{\"other\": \"two\"}\n");
  expect_refused({"eval", "weights"}, {"weights: isn't a run's directory"});
  expect_refused({"eval", "weights", "--data", "none"}, {"none: no such file"});
  expect_refused({"eval", "weights", "--data", "n\xff"}, {"needs a name in UTF-8"});
  expect_refused({"eval", "weights", "--data", "text.txt", "--set", "model.num_layers=7"},
                 {"num_layers"});
}

// The text of ready-made tokens is unknown. It is not bytes, although the config's default
// tokenizer is "byte".
TEST_F(CliTest, TextIsRefusedForARunOnReadyMadeTokens) {
  {
    IndexedWriter pair(dir / "tokens", 300);
    std::vector<std::int32_t> ids(400);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * 7 % 300);
    pair.append(ids);
    pair.end_document();
    pair.commit();
  }
  const Outcome trained =
      run(train({"data.train=[{\"path\":\"tokens\"}]", "model.vocab_size=300"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Outcome own = run({"eval", "run", "--part", "train", "--format", "json"});
  ASSERT_EQ(own.code, 0) << own.err;
  EXPECT_EQ(json::parse(own.out).at("results")[0].at("bytes"), nullptr);
  // If another run replaces a run on bytes, that run's tokenizer is removed. A file of the user's
  // stays.
  ASSERT_EQ(run(train({"logging.overwrite=true", "model.vocab_size=300"})).code, 0);
  ASSERT_TRUE(std::filesystem::exists(dir / "weights/tokenizer.json"));
  spit(dir / "weights/merges.txt", "mine");
  const Outcome replaced = run(train(
      {"data.train=[{\"path\":\"tokens\"}]", "model.vocab_size=300", "logging.overwrite=true"}));
  ASSERT_EQ(replaced.code, 0) << replaced.err;
  EXPECT_FALSE(std::filesystem::exists(dir / "weights/tokenizer.json"));
  EXPECT_TRUE(std::filesystem::exists(dir / "weights/merges.txt"));
  expect_refused({"eval", "run", "--data", "text.txt"}, {"/data/tokenizer/path"});
}

// The model takes any bytes, and transformers can read its tokenizer.json (tests/peers).
TEST_F(CliTest, AByteModelHasATokenizerAndTakesAnyBytes) {
  train_once();
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"}) {
    EXPECT_TRUE(std::filesystem::exists(dir / (std::string("weights/") + name))) << name;
  }
  ASSERT_EQ(run({"export", "run", "exported"}).code, 0);
  EXPECT_EQ(slurp(dir / "exported/tokenizer.json"), slurp(dir / "weights/tokenizer.json"));
  expect_refused({"export", "run", ""}, {"needs a name"});
  expect_refused({"export", "run", std::string(260, 'x') + ".gguf"}, {"File name too long"});
  const Outcome outcome =
      run({"generate", "exported", "--prompt", "\xff\xfe", "--tokens", "3", "--format", "json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json tokens = json::parse(outcome.out).at("tokens");
  EXPECT_EQ(tokens[0], 255);
  EXPECT_EQ(tokens[1], 254);
  // The rule of transformers: a generation_config.json without an end token means that there is
  // none.
  json keys = json::parse(slurp(dir / "exported/config.json"));
  keys["eos_token_id"] = tokens[2];
  spit(dir / "exported/config.json", keys.dump());
  const auto count = [&](const std::string& generation) {
    std::filesystem::remove(dir / "exported/generation_config.json");
    if (!generation.empty()) spit(dir / "exported/generation_config.json", generation);
    const Outcome same =
        run({"generate", "exported", "--prompt", "\xff\xfe", "--tokens", "3", "--format", "json"});
    return json::parse(same.out).at("tokens").size();
  };
  EXPECT_EQ(count(R"({"eos_token_id": null})"), 5u);
  EXPECT_EQ(count("{}"), 5u);
  EXPECT_EQ(count("{\"eos_token_id\": " + tokens[2].dump() + "}"), 3u);
  EXPECT_EQ(count(""), 3u);
}

TEST_F(CliTest, AByteModelMayHaveMoreEntriesThanBytes) {
  ASSERT_EQ(run(train({"model.vocab_size=300"})).code, 0);
  const Outcome text =
      run({"generate", "run", "--prompt", "In", "--tokens", "5", "--format", "json"});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_TRUE(json::parse(text.out).contains("text")) << text.out;
  // Brackets are text, and --stop works with --ids, too.
  const Outcome stopped = run({"generate", "run", "--ids", "73,110", "--tokens", "20",
                               "--stop=[x,n]", "--stop", "\x01\x02\x03", "--format", "json"});
  ASSERT_EQ(stopped.code, 0) << stopped.err;
  EXPECT_EQ(json::parse(stopped.out).at("tokens").size(), 22u);
  const Outcome loss = run({"eval", "run", "--data", "text.txt", "--format", "json"});
  ASSERT_EQ(loss.code, 0) << loss.err;
  const json row = json::parse(loss.out).at("results")[0];
  EXPECT_EQ(row.at("bytes"), row.at("tokens"));
  for (const char* seed : {"18446744073709551616", "-1", "1.5"}) {
    const Outcome refused = run({"generate", "run", "--prompt", "In", "--seed", seed});
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err, HasSubstr("--seed: needs a whole number from 0 to 2^64 - 1"));
  }
  // A run that begins with these weights keeps the tokenizer.
  ASSERT_EQ(run(train({"model.vocab_size=300", "checkpoint.load=weights", "checkpoint.save=more",
                       "logging.dir=more_run"}))
                .code,
            0);
  EXPECT_EQ(slurp(dir / "more/tokenizer.json"), slurp(dir / "weights/tokenizer.json"));
}

// A resumed run uses its checkpoint's tokenizer, unless the config names another one.
TEST_F(CliTest, AResumedRunKeepsItsTokenizer) {
  const auto resume = [&](std::vector<std::string> more, const char* iterations) {
    more.insert(more.end(), {"model.vocab_size=300", "checkpoint.save_interval=2",
                             std::string("training.train_iters=") + iterations});
    return run(train(more));
  };
  ASSERT_EQ(resume({}, "2").code, 0);
  const std::string bytes = slurp(dir / "weights/tokenizer.json");
  {
    IndexedWriter pair(dir / "tokens", 300);
    const std::vector<std::int32_t> ids(400, 7);
    pair.append(ids);
    pair.end_document();
    pair.commit();
  }
  const std::string ready_made = "data.train=[{\"path\":\"tokens\"}]";
  for (const char* iterations : {"2", "4"}) {
    const Outcome outcome = resume({ready_made}, iterations);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(slurp(dir / "weights/tokenizer.json"), bytes) << iterations;
    EXPECT_TRUE(std::filesystem::exists(dir / "weights/tokenizer_config.json"));
  }
  EXPECT_EQ(slurp(dir / "weights/iteration-4/tokenizer.json"), bytes);
  // First the same tokenizer in another JSON layout, then a different one.
  spit(dir / "tokenizer.json", json::parse(bytes).dump());
  const std::string from_file = R"(data.tokenizer={"type":"file","path":"tokenizer.json"})";
  const std::vector<std::string> with_file{from_file, "data.append_eod=false"};
  const Outcome same = resume(with_file, "6");
  ASSERT_EQ(same.code, 0) << same.err;
  EXPECT_THAT(same.err, Not(HasSubstr("another tokenizer")));
  json other = json::parse(bytes);
  std::swap(other["model"]["vocab"]["a"], other["model"]["vocab"]["b"]);
  spit(dir / "tokenizer.json", other.dump());
  const Outcome changed = resume(with_file, "8");
  ASSERT_EQ(changed.code, 0) << changed.err;
  EXPECT_THAT(changed.err, HasSubstr("is another tokenizer than that of weights/iteration-6"));
}

TEST_F(CliTest, RemainingFilesOfAnotherTokenizerAreReported) {
  train_once();
  std::filesystem::create_directory(dir / "out");
  spit(dir / "out/special_tokens_map.json", "{}");
  const Outcome exported = run({"export", "run", "out", "--overwrite"});
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_THAT(exported.err, HasSubstr("out: special_tokens_map.json there stays"));
  spit(dir / "weights/added_tokens.json", "[]");
  const Outcome again = run(train({"logging.overwrite=true"}));
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("weights: added_tokens.json there stays"));
}

TEST_F(CliTest, ExportAndImportKeepEveryByteOfTheWeights) {
  train_once();
  ASSERT_EQ(run({"export", "run", "exported"}).code, 0);
  ASSERT_EQ(run({"import", "exported", "imported"}).code, 0);
  const std::string weights = slurp(dir / "weights/model.safetensors");
  EXPECT_GT(weights.size(), 40000u);
  EXPECT_EQ(slurp(dir / "exported/model.safetensors"), weights);
  EXPECT_EQ(slurp(dir / "imported/model.safetensors"), weights);
  EXPECT_EQ(slurp(dir / "imported/config.json"), slurp(dir / "weights/config.json"));
  expect_refused({"export", "nowhere", "x"}, {"nowhere/config.json"});
  expect_refused({"export", "run", "file/x"}, {"file/x: can't make this directory"});
}

}  // namespace
}  // namespace trident::testing
